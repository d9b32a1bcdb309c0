// @azure/service-bus against the model of Azure Service Bus.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { ServiceBusAdministrationClient, ServiceBusClient } from "@azure/service-bus";
import { endpoint, unique } from "./endpoints.mjs";

const connection = endpoint("servicebus").env.SERVICEBUS_CONNECTION_STRING;
const client = new ServiceBusClient(connection);
after(() => client.close());

// queue makes one over the administration's HTTP interface.
async function queue(options = {}) {
  const name = unique("node");
  await administration.createQueue(name, { lockDuration: "PT5S", ...options });
  return name;
}

// This client knows no emulators: it asks by HTTPS alone, and is led to plain HTTP.
const administration = new ServiceBusAdministrationClient(connection);
administration.pipeline.addPolicy({
  name: "plain HTTP",
  sendRequest: (request, next) => next(Object.assign(request, { url: request.url.replace("https:", "http:"), allowInsecureConnection: true })),
});

async function one(receiver) {
  const [m] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 10_000 });
  assert.ok(m, "a message");
  return m;
}

test("publish, receive, settle, dedup", async () => {
  const name = await queue({ requiresDuplicateDetection: true, duplicateDetectionHistoryTimeWindow: "PT1M" });
  const sender = client.createSender(name);
  const message = { body: Buffer.from([0, 255]), messageId: "1", applicationProperties: { a: 1, b: "two" } };
  await sender.sendMessages(message);
  await sender.sendMessages(message); // taken, and not stored again
  await sender.sendMessages([{ body: Buffer.from("last"), messageId: "2" }]);
  const receiver = client.createReceiver(name);
  const first = await one(receiver);
  assert.deepEqual(Buffer.from(first.body), Buffer.from([0, 255]));
  assert.deepEqual({ ...first.applicationProperties }, { a: 1, b: "two" });
  await receiver.completeMessage(first);
  const second = await one(receiver);
  assert.equal(second.messageId, "2");
  await receiver.completeMessage(second);
  await receiver.close();
  await sender.close();
});

test("redelivery and dead letters", async () => {
  const name = await queue();
  const sender = client.createSender(name);
  await sender.sendMessages({ body: "again", messageId: "1" });
  const receiver = client.createReceiver(name);
  const first = await one(receiver);
  assert.equal(first.deliveryCount, 0);
  await receiver.abandonMessage(first);
  const second = await one(receiver);
  assert.equal(second.deliveryCount, 1);
  await receiver.renewMessageLock(second);
  await receiver.deadLetterMessage(second, { deadLetterReason: "why", deadLetterErrorDescription: "because" });
  const dead = client.createReceiver(name, { subQueueType: "deadLetter" });
  const letter = await one(dead);
  assert.equal(letter.deadLetterReason, "why");
  assert.equal(letter.deadLetterErrorDescription, "because");
  await dead.completeMessage(letter);
  for (const x of [receiver, dead, sender]) await x.close();
});

test("sessions", async () => {
  const name = await queue({ requiresSession: true });
  const sender = client.createSender(name);
  await sender.sendMessages(["1", "2"].map((n) => ({ body: n, sessionId: "s", messageId: n })));
  const session = await client.acceptNextSession(name);
  assert.equal(session.sessionId, "s");
  await session.setSessionState("half way");
  assert.equal(await session.getSessionState(), "half way");
  for (const want of ["1", "2"]) {
    const m = await one(session);
    assert.equal(m.body, want);
    await session.completeMessage(m);
  }
  await session.close();
  await sender.close();
});

test("topics, subscriptions and rules", async () => {
  const name = unique("node");
  await administration.createTopic(name);
  await administration.createSubscription(name, "all");
  await administration.createSubscription(name, "some");
  await administration.deleteRule(name, "some", "$Default");
  await administration.createRule(name, "some", "red", { sqlExpression: "color = 'red' AND size > 1" });
  const sender = client.createSender(name);
  await sender.sendMessages([
    { body: "a", applicationProperties: { color: "red", size: 2 } },
    { body: "b", applicationProperties: { color: "blue", size: 2 } },
  ]);
  const some = client.createReceiver(name, "some", { receiveMode: "receiveAndDelete" });
  const all = client.createReceiver(name, "all", { receiveMode: "receiveAndDelete" });
  assert.equal((await one(some)).body, "a");
  assert.equal((await some.peekMessages(1)).length, 0);
  assert.deepEqual([(await one(all)).body, (await one(all)).body], ["a", "b"]);
  for (const x of [some, all, sender]) await x.close();
});
