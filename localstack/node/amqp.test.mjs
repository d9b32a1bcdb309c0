// amqplib against the model of RabbitMQ.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import amqp from "amqplib";
import { endpoint, unique, until } from "./endpoints.mjs";

const connection = await amqp.connect(endpoint("rabbitmq").env.AMQP_URL);
after(() => connection.close());

const get = (ch, queue) => until(`a message in ${queue}`, async () => (await ch.get(queue)) || undefined);

test("publish, receive, settle", async () => {
  const ch = await connection.createConfirmChannel();
  const queue = unique("node");
  await ch.assertQueue(queue, { durable: true });
  ch.sendToQueue(queue, Buffer.from([0, 255]), { messageId: "1", headers: { a: 1 }, persistent: true });
  await ch.waitForConfirms();
  const m = await get(ch, queue);
  assert.deepEqual(m.content, Buffer.from([0, 255]));
  assert.equal(m.properties.messageId, "1");
  assert.equal(m.properties.headers.a, 1);
  ch.ack(m);
  assert.equal(await ch.get(queue), false);
  await ch.close();
});

test("redelivery counts on a quorum queue, then the dead-letter exchange", async () => {
  const ch = await connection.createConfirmChannel();
  const [queue, dead] = [unique("node"), unique("dead")];
  await ch.assertQueue(dead, { durable: true });
  await ch.assertQueue(queue, { durable: true, arguments: {
    "x-queue-type": "quorum", "x-delivery-limit": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead,
  } });
  ch.sendToQueue(queue, Buffer.from("again"));
  await ch.waitForConfirms();
  const first = await get(ch, queue);
  assert.equal(first.fields.redelivered, false);
  ch.nack(first); // is redelivered and doesn't count (RMQ-F-15)
  const second = await get(ch, queue);
  assert.equal(second.fields.redelivered, true);
  assert.equal(second.properties.headers["x-acquired-count"], 1);
  ch.reject(second); // counts
  const third = await get(ch, queue);
  assert.equal(third.properties.headers["x-delivery-count"], 1);
  ch.reject(third);
  const letter = await get(ch, dead);
  assert.equal(letter.properties.headers["x-death"][0].reason, "delivery_limit");
  ch.ack(letter);
  await ch.close();
});

test("what no queue takes comes back, though it is confirmed; nothing is deduplicated", async () => {
  const ch = await connection.createConfirmChannel();
  const returned = [];
  ch.on("return", (m) => returned.push(m));
  ch.publish("", unique("nowhere"), Buffer.from("lost"), { mandatory: true, messageId: "1" });
  await ch.waitForConfirms();
  assert.equal(returned.length, 1);
  assert.equal(returned[0].fields.replyCode, 312);
  const queue = unique("node");
  await ch.assertQueue(queue);
  for (const n of [1, 2]) ch.sendToQueue(queue, Buffer.from(`${n}`), { messageId: "same" });
  await ch.waitForConfirms();
  assert.equal((await ch.checkQueue(queue)).messageCount, 2);
  await ch.close();
});

test("errors close the channel with the vendor's code", async () => {
  const ch = await connection.createChannel();
  const failed = new Promise((resolve) => ch.on("error", resolve));
  await assert.rejects(ch.checkQueue(unique("nowhere")), /404/);
  assert.equal((await failed).code, 404);
});

test("consumers: prefetch and what a closed channel gives back", async () => {
  const ch = await connection.createConfirmChannel();
  const queue = unique("node");
  await ch.assertQueue(queue);
  for (const n of ["1", "2"]) ch.sendToQueue(queue, Buffer.from(n));
  await ch.waitForConfirms();
  const other = await connection.createChannel();
  await other.prefetch(1);
  const got = [];
  await other.consume(queue, (m) => got.push(m));
  await until("the first message", () => got[0]);
  assert.equal((await ch.checkQueue(queue)).messageCount, 1, "one is out, as the prefetch says");
  await other.close();
  const m = await get(ch, queue);
  assert.equal(`${m.content} ${m.fields.redelivered}`, "1 true");
  ch.ack(m);
  await ch.close();
});
