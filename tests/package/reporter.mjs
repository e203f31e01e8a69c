// Tells what Node's test runner finds in the words of Rust's, which xtask counts.
export default async function* (events) {
  let [passed, failed] = [0, 0];
  for await (const { type, data } of events) {
    // It was not asked for.
    if (data.skip === "test name does not match pattern") continue;
    // A file is a test of its own to Node where it ran in a process of its own.
    const isTest = (type === "test:pass" || type === "test:fail") && data.nesting === 0 && !data.name.endsWith(".mjs");
    if (isTest && type === "test:pass") {
      passed += 1;
      yield `test ${data.name} ... ok\n`;
    } else if (type === "test:fail" && !isTest) {
      yield `${data.details.error?.message}\n`;
    } else if (isTest) {
      failed += 1;
      const { error } = data.details;
      yield `test ${data.name} ... FAILED\n${error.cause?.stack ?? error.stack ?? error.message}\n`;
    } else if (type === "test:stdout" || type === "test:stderr") {
      yield data.message;
    }
  }
  yield `test result: ${failed ? "FAILED" : "ok"}. ${passed} passed; ${failed} failed; 0 ignored\n`;
}
