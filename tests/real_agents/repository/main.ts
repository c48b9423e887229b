import { summary } from "./agents/report/summary.ts";

console.log(summary(await new Response(Deno.stdin.readable).text()));
