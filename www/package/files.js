// Where a model's bytes are: a URL, which is read by ranges, or blobs. A stream is read whole into a blob first, since weights
// are not read in the order in which they lie.

// A module of Node, which Deno and Bun have too. Its name is not written out: bundlers for pages would look for it.
export const node = (name) => import(/* webpackIgnore: true */ /* @vite-ignore */ `node:${name}`);

const isNode = Boolean(globalThis.process?.versions?.node);

// Tells blobs of equal lengths from each other: nothing else does.
let nBlobs = 0;

// The model's source as the engine takes it, and the blobs that belong to it.
export const modelOf = async (source) => {
  if (typeof source === "string" || source instanceof URL) return { source: { kind: "Url", url: await urlOf(source) }, blobs: [] };
  const named = Array.isArray(source) ? source.map(fileOf) : [{ name: nameOf(source), data: source }];
  if (!named.length) throw new TypeError("load needs at least one file of the model, found an empty array");
  const blobs = await Promise.all(named.map(({ name, data }) => blobOf(name, data)));
  const files = named.map(({ name, data }, index) => {
    const modifiedMs = data.lastModified > 0 ? Math.trunc(data.lastModified) : ++nBlobs;
    return { name, lenBytes: blobs[index].size, modifiedMs };
  });
  return { source: { kind: "Attachments", files }, blobs };
};

const fileOf = (file) => {
  const isFile = typeof file?.name === "string" && typeof file.arrayBuffer === "function";
  if (isFile) return { name: nameOf(file), data: file };
  if (typeof file?.name === "string" && file.data !== undefined) return { ...file, name: wellFormed(file.name) };
  throw new TypeError("each of several files must be a File, or an object with `name` and `data`");
};

// Half a character would come back from the engine as another name.
const wellFormed = (name) => name.replace(/\p{Surrogate}/gu, "\uFFFD");

const nameOf = (source) => {
  const ofResponse = source?.url ? new URL(source.url).pathname.split("/").pop() : "";
  const name = source?.webkitRelativePath || source?.name || ofResponse || "model.gguf";
  return wellFormed(name);
};

const blobOf = async (name, data) => {
  if (data instanceof Blob) return data;
  if (data instanceof ArrayBuffer || ArrayBuffer.isView(data)) return new Blob([data]);
  if (data instanceof ReadableStream) return new Response(data).blob();
  if (data instanceof Response) {
    if (!data.ok) throw new Error(`cannot read ${name}: the server answered with HTTP ${data.status}`);
    return data.blob();
  }
  const kinds = "a URL, a Uint8Array, an ArrayBuffer, a Blob, a ReadableStream, a Response, or an array of files";
  throw new TypeError(`a model is loaded from ${kinds}, found ${data === null ? "null" : typeof data} for ${name}`);
};

// An absolute address. In Node a string that is none is a path; what ends as a folder does stands for the model in it.
const urlOf = async (source) => {
  const text = String(source);
  // A letter and a colon begin a path of Windows.
  const isAbsolute = source instanceof URL || /^[a-z][a-z0-9+.-]+:/i.test(text);
  const isPath = isNode && !isAbsolute;
  const url = isPath ? (await node("url")).pathToFileURL(text) : addressOf(text);
  if (isNode && url.protocol === "file:") await checkFile(url);
  if (url.pathname.endsWith("/")) url.pathname += "config.json";
  return url.href;
};

const addressOf = (text) => {
  try {
    return new URL(text, globalThis.location?.href);
  } catch {
    throw new TypeError(`${JSON.stringify(text)} is not an address that can be read from here; give a whole URL`);
  }
};

const checkFile = async (url) => {
  const { stat } = await node("fs/promises");
  const found = await stat(url).catch((error) => {
    const why = error.code === "ENOENT" ? "there is no such file" : error.message;
    throw new Error(`cannot read ${decodeURIComponent(url.pathname)}: ${why}`, { cause: error });
  });
  if (found.isDirectory() && !url.pathname.endsWith("/")) url.pathname += "/";
};

// What the engine asks for URLs: `fetch`, and files where the runtime has them.
export const fetchAny = (fetch) => (url, init) => {
  if (isNode && url.startsWith("file:")) return fetchFile(url, init);
  return fetch ? fetch(url, init) : globalThis.fetch(url, init);
};

// A file, as a server that knows ranges answers.
const fetchFile = async (url, { headers }) => {
  const { open } = await node("fs/promises");
  const file = await open(new URL(url)).catch((error) => {
    if (error.code === "ENOENT") return null;
    throw error;
  });
  if (!file) return new Response(null, { status: 404 });
  try {
    const { size, mtimeMs } = await file.stat();
    const [first, wanted] = headers.Range.match(/\d+/g).map(Number);
    const last = Math.min(wanted, size - 1);
    if (first > last) return new Response(null, { status: 416 });
    const bytes = new Uint8Array(last - first + 1);
    for (let done = 0; done < bytes.length; ) {
      const { bytesRead } = await file.read(bytes, done, bytes.length - done, first + done);
      if (!bytesRead) break;
      done += bytesRead;
    }
    const range = `bytes ${first}-${last}/${size}`;
    return new Response(bytes, { status: 206, headers: { "Content-Range": range, ETag: `"${mtimeMs}"` } });
  } finally {
    await file.close();
  }
};
