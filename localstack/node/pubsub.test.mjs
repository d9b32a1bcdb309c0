// @google-cloud/pubsub against the model of Pub/Sub.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { AckResponses, PubSub } from "@google-cloud/pubsub";
import { endpoint, unique, until } from "./endpoints.mjs";

Object.assign(process.env, endpoint("pubsub").env); // as a program finds it
const client = new PubSub({ projectId: process.env.PUBSUB_PROJECT_ID });
after(() => client.close());

async function topic(options = {}) {
  const [t] = await client.createTopic(unique("node"));
  const [s] = await t.createSubscription(unique("node"), { ackDeadlineSeconds: 10, ...options });
  return { topic: t, subscription: s };
}

// listen collects messages until stop.
function listen(subscription) {
  const messages = [];
  const errors = [];
  subscription.on("message", (m) => messages.push(m));
  subscription.on("error", (e) => errors.push(e));
  return {
    next: (what = "a message") => until(what, () => {
      if (errors.length) throw errors[0];
      return messages.shift();
    }),
    stop: () => subscription.close(),
  };
}

test("publish, receive, settle", async () => {
  const { topic: t, subscription } = await topic();
  const id = await t.publishMessage({ data: Buffer.from([0, 255]), attributes: { a: "1" } });
  const inbox = listen(subscription);
  const m = await inbox.next();
  assert.equal(m.id, id);
  assert.deepEqual(m.data, Buffer.from([0, 255]));
  assert.equal(m.attributes.a, "1");
  m.ack();
  await inbox.stop();
});

test("redelivery, and no dedup of publishes", async () => {
  const { topic: t, subscription } = await topic();
  const first = await t.publishMessage({ data: Buffer.from("same") });
  const inbox = listen(subscription);
  (await inbox.next()).nack();
  const again = await inbox.next("the redelivery");
  assert.equal(again.id, first);
  again.ack();
  assert.notEqual(await t.publishMessage({ data: Buffer.from("same") }), first);
  (await inbox.next("the second message")).ack();
  await inbox.stop();
});

test("exactly once: an ack has an answer", async () => {
  const { topic: t, subscription } = await topic({ enableExactlyOnceDelivery: true });
  await t.publishMessage({ data: Buffer.from("once") });
  const inbox = listen(subscription);
  const m = await inbox.next();
  assert.equal(await m.ackWithResponse(), AckResponses.Success);
  await inbox.stop();
});

test("ordering keys", async () => {
  const { topic: t, subscription } = await topic({ enableMessageOrdering: true });
  const ordered = client.topic(t.name, { messageOrdering: true });
  await Promise.all(["1", "2", "3"].map((n) => ordered.publishMessage({ data: Buffer.from(n), orderingKey: "k" })));
  const inbox = listen(subscription);
  for (const want of ["1", "2", "3"]) {
    const m = await inbox.next(want);
    assert.equal(`${m.data}`, want);
    m.ack();
  }
  await inbox.stop();
});
