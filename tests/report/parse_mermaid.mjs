// Parses each file named in the arguments with Mermaid itself; prints what it refuses and ends with 1 then.
import { readFileSync } from "node:fs";
import { JSDOM } from "jsdom";

const dom = new JSDOM("<!doctype html><body></body>");
globalThis.window = dom.window;
globalThis.document = dom.window.document;
const { default: mermaid } = await import("mermaid");
mermaid.initialize({ startOnLoad: false, securityLevel: "strict" });

let refused = 0;
for (const file of process.argv.slice(2)) {
  try {
    await mermaid.parse(readFileSync(file, "utf8"));
  } catch (error) {
    refused = 1;
    console.log(`${file}: ${error.message}`);
  }
}
process.exit(refused);
