/** The lines of a text that are not blank. */
export function lines(text: string): string[] {
  return text.split("\n").filter((line) => line.trim() !== "");
}
