/**
 * Both fakes in a process of their own: `node test/fakes/serve.ts [--port-file F] [--resend-port N] [--telegram-port N]
 * [--count-only] [--stores-errors]`. Prints one line of JSON with their URLs, and writes it to F; ends with SIGTERM.
 * Scripted over HTTP: see control.ts.
 */
import { renameSync, writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { openFakeResend } from "./resend.ts";
import { openFakeTelegram } from "./telegram.ts";

const { values } = parseArgs({
  options: {
    "port-file": { type: "string" },
    "resend-port": { type: "string", default: "0" },
    "telegram-port": { type: "string", default: "0" },
    "count-only": { type: "boolean", default: false },
    "stores-errors": { type: "boolean", default: false },
  },
});
const common = { countOnly: values["count-only"] };
const resend = await openFakeResend({
  ...common,
  port: Number(values["resend-port"]),
  storesErrors: values["stores-errors"],
});
const telegram = await openFakeTelegram({ ...common, port: Number(values["telegram-port"]) });

const urls = `${JSON.stringify({ resend: resend.url, telegram: telegram.url, pid: process.pid })}\n`;
const file = values["port-file"];
if (file !== undefined) {
  // Whoever waits for the file never reads half of it.
  writeFileSync(`${file}.part`, urls);
  renameSync(`${file}.part`, file);
}
process.stdout.write(urls);

const end = () => {
  Promise.all([resend.close(), telegram.close()]).then(() => process.exit(0));
};
process.once("SIGTERM", end);
process.once("SIGINT", end);
