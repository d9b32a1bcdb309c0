// nats.js against the embedded NATS server.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { AckPolicy, connect, headers, nanos, StringCodec } from "nats";
import { endpoint, unique } from "./endpoints.mjs";

const nc = await connect({ servers: endpoint("nats").env.NATS_URL });
after(() => nc.close());
const text = StringCodec();
const js = nc.jetstream();
const jsm = await nc.jetstreamManager();

async function stream(ackWait = 30_000) {
  const name = unique("node");
  await jsm.streams.add({ name, subjects: [`${name}.>`] });
  await jsm.consumers.add(name, { durable_name: "c", ack_policy: AckPolicy.Explicit, ack_wait: nanos(ackWait) });
  return { name, consumer: await js.consumers.get(name, "c") };
}

test("publish, receive, settle, dedup", async () => {
  const { name, consumer } = await stream();
  const h = headers();
  h.append("a", "1");
  const first = await js.publish(`${name}.x`, text.encode("one"), { msgID: "1", headers: h });
  const again = await js.publish(`${name}.y`, text.encode("other"), { msgID: "1" });
  assert.equal(first.duplicate, false);
  assert.equal(again.duplicate, true);
  assert.equal(again.seq, first.seq);
  const m = await consumer.next();
  assert.equal(text.decode(m.data), "one");
  assert.equal(m.headers.get("a"), "1");
  assert.equal(await m.ackAck(), true);
  assert.equal(await consumer.next({ expires: 1000 }), null);
});

test("redelivery", async () => {
  const { name, consumer } = await stream(500);
  await js.publish(`${name}.x`, text.encode("again"));
  const first = await consumer.next();
  assert.equal(first.info.redeliveryCount, 1);
  const second = await consumer.next(); // its lease has ended
  assert.equal(second.info.redeliveryCount, 2);
  second.nak();
  const third = await consumer.next();
  assert.equal(third.info.redeliveryCount, 3);
  await third.ackAck();
});
