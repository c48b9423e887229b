import { lines } from "../../src/text/lines.ts";

/** How many lines a report has. */
export function summary(report: string): string {
  return `${lines(report).length} lines`;
}
