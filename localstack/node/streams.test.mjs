// rabbitmq-stream-js-client against the model of RabbitMQ's streams.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { connect, Offset } from "rabbitmq-stream-js-client";
import { endpoint, unique, until } from "./endpoints.mjs";

const [hostname, port] = endpoint("rabbitmq").address.split(":");
const client = await connect({ hostname, port: Number(port), username: "guest", password: "guest", vhost: "/", heartbeat: 0 });
after(() => client.close());

test("publish, receive, dedup by publishing ID, stored offset", async () => {
  const stream = unique("node");
  await client.createStream({ stream, arguments: {} });
  const publisher = await client.declarePublisher({ stream, publisherRef: "p" });
  await publisher.send(Buffer.from("one"), { publishingId: 1n });
  await publisher.send(Buffer.from("one again"), { publishingId: 1n });
  await publisher.send(Buffer.from("two"), { publishingId: 2n });
  await publisher.flush();
  const got = [];
  const consumer = await client.declareConsumer({ stream, offset: Offset.first(), consumerRef: "c" }, (m) => got.push(m));
  await until("two messages", () => (got.length >= 2 ? true : undefined));
  assert.deepEqual(got.map((m) => `${m.content}`), ["one", "two"]);
  await consumer.storeOffset(got[1].offset);
  await until("the stored offset", async () => {
    try {
      return (await client.queryOffset({ reference: "c", stream })) === got[1].offset ? true : undefined;
    } catch {
      return undefined; // storing has no answer
    }
  });
  assert.equal(await publisher.getLastPublishingId(), 2n);
  await consumer.close();
  await publisher.close();
  await client.deleteStream({ stream });
});
