// How to connect to the brokers that "onceline up --ready-file FILE" runs:
// ONCELINE_READY names that file.
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const path = process.env.ONCELINE_READY;
if (!path) throw new Error("ONCELINE_READY does not name the ready file of 'onceline up'");

const brokers = JSON.parse(readFileSync(path, "utf8")).brokers;

// endpoint is what the file says of one broker.
export function endpoint(name) {
  const found = brokers.find((b) => b.broker === name);
  if (!found) throw new Error(`onceline up runs no ${name}`);
  return { ...found, env: Object.fromEntries(found.env.map((v) => [v.name, v.value])) };
}

// unique makes a name that no other test uses.
let names = 0;
export const unique = (prefix) => `${prefix}-${process.pid}-${++names}`;

// until asks again, soon, until the answer isn't undefined, for ten seconds.
export async function until(what, ask) {
  for (let end = Date.now() + 10_000; Date.now() < end; await sleep(20)) {
    const answer = await ask();
    if (answer !== undefined) return answer;
  }
  throw new Error(`${what} did not happen within 10 s`);
}
