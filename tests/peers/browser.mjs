// Shows a page of this folder in the browser, on the device that the page's own tests use, and hears what it tells.

import { spawn } from "node:child_process";
import { createReadStream, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { extname, join, normalize } from "node:path";

const TYPES = { ".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript", ".json": "application/json", ".wasm": "application/wasm" };

/// Opens `page` with `folders` (URL prefix → folder) below it, answers /asked with `asked`, and returns what the page told until
/// it was done. Throws what the page told as its error.
export async function show({ page, folders, asked, switches, chromium, limitSecs }) {
    const told = [];
    const profile = mkdtempSync(join(tmpdir(), "peers-"));
    let browser, server;
    try {
        await new Promise((resolve, reject) => {
            const timer = setTimeout(() => reject(new Error(`${page} was not done after ${limitSecs} s; it told ${JSON.stringify(told)}`)), limitSecs * 1000);
            const hear = (message) => {
                told.push(message);
                if (message.error) reject(new Error(`${page}: ${message.error}`));
                if (message.done) resolve(clearTimeout(timer));
            };
            server = createServer((request, response) => answer(request, response, folders, asked, hear));
            server.listen(0, "127.0.0.1", () => {
                const url = `http://127.0.0.1:${server.address().port}${page}`;
                browser = spawn(chromium, [...switches, `--user-data-dir=${profile}`, url], { stdio: "ignore" });
                browser.on("error", reject);
                browser.on("exit", (code) => reject(new Error(`Chromium ended with ${code}`)));
            });
        });
    } finally {
        if (browser?.exitCode === null) {
            const gone = new Promise((resolve) => browser.on("exit", resolve));
            browser.kill();
            await gone;
        }
        server?.closeAllConnections();
        server?.close();
        try {
            // Its other processes may write a last file.
            rmSync(profile, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 });
        } catch (error) {
            console.error(`${profile} is left behind: ${error.message}`);
        }
    }
    return told;
}

/// The switches that the kernel and page tests start Chromium with.
export function switchesOf(root) {
    return readFileSync(join(root, "tests/page/chromium-switches.txt"), "utf8").trim().split("\n");
}

function answer(request, response, folders, asked, hear) {
    const path = normalize(new URL(request.url, "http://127.0.0.1").pathname);
    if (path === "/asked") {
        response.setHeader("Content-Type", "application/json");
        return response.end(JSON.stringify(asked));
    }
    if (path === "/told") {
        const parts = [];
        request.on("data", (part) => parts.push(part));
        request.on("end", () => {
            response.end();
            hear(JSON.parse(Buffer.concat(parts)));
        });
        return undefined;
    }
    const prefix = Object.keys(folders).find((prefix) => path.startsWith(prefix));
    const file = prefix && join(folders[prefix], path.slice(prefix.length));
    const found = file && statSync(file, { throwIfNoEntry: false });
    if (!found?.isFile()) {
        response.writeHead(404);
        return response.end();
    }
    response.writeHead(200, { "Content-Type": TYPES[extname(file)] ?? "application/octet-stream", "Content-Length": found.size });
    return createReadStream(file).pipe(response);
}
