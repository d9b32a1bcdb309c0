// @aws-sdk/client-sqs against the model of Amazon SQS.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import {
  ChangeMessageVisibilityCommand, CreateQueueCommand, DeleteMessageCommand, DeleteMessageBatchCommand, GetQueueAttributesCommand,
  QueueDoesNotExist, GetQueueUrlCommand, ReceiveMessageCommand, SendMessageBatchCommand, SendMessageCommand, SQSClient,
} from "@aws-sdk/client-sqs";
import { endpoint, unique } from "./endpoints.mjs";

Object.assign(process.env, endpoint("sqs").env); // as a program finds it
const client = new SQSClient({});
after(() => client.destroy());

async function queue(attributes = {}) {
  const fifo = attributes.FifoQueue ? ".fifo" : "";
  const { QueueUrl } = await client.send(new CreateQueueCommand({ QueueName: unique("node") + fifo, Attributes: attributes }));
  return QueueUrl;
}

async function receive(QueueUrl, options = {}) {
  const { Messages = [] } = await client.send(new ReceiveMessageCommand({
    QueueUrl, MaxNumberOfMessages: 10, WaitTimeSeconds: 1, MessageSystemAttributeNames: ["All"], MessageAttributeNames: ["All"], ...options,
  }));
  return Messages;
}

test("publish, receive, settle", async () => {
  const QueueUrl = await queue();
  const sent = await client.send(new SendMessageBatchCommand({
    QueueUrl,
    Entries: [
      { Id: "a", MessageBody: "one", MessageAttributes: { n: { DataType: "Number", StringValue: "1" }, b: { DataType: "Binary", BinaryValue: Buffer.from([0, 255]) } } },
      { Id: "b", MessageBody: "two" },
      { Id: "c", MessageBody: "late", DelaySeconds: 901 },
    ],
  }));
  // One bad entry harms no other. The SDK checks the MD5 of each body.
  assert.deepEqual(sent.Successful.map((e) => e.Id), ["a", "b"]);
  assert.equal(sent.Failed[0].Id, "c");
  assert.equal(sent.Failed[0].SenderFault, true);
  const messages = await receive(QueueUrl);
  assert.deepEqual(messages.map((m) => m.Body).sort(), ["one", "two"]);
  const one = messages.find((m) => m.Body === "one");
  assert.equal(one.MessageAttributes.n.StringValue, "1");
  assert.deepEqual(Buffer.from(one.MessageAttributes.b.BinaryValue), Buffer.from([0, 255]));
  const deleted = await client.send(new DeleteMessageBatchCommand({
    QueueUrl, Entries: [...messages.map((m, i) => ({ Id: `${i}`, ReceiptHandle: m.ReceiptHandle })), { Id: "x", ReceiptHandle: "garbage" }],
  }));
  assert.equal(deleted.Successful.length, 2);
  assert.equal(deleted.Failed[0].Code, "ReceiptHandleIsInvalid");
  const { Attributes } = await client.send(new GetQueueAttributesCommand({ QueueUrl, AttributeNames: ["All"] }));
  assert.equal(Attributes.ApproximateNumberOfMessages, "0");
  assert.equal(Attributes.ApproximateNumberOfMessagesNotVisible, "0");
});

test("redelivery", async () => {
  const QueueUrl = await queue({ VisibilityTimeout: "1" });
  await client.send(new SendMessageCommand({ QueueUrl, MessageBody: "again" }));
  const [first] = await receive(QueueUrl);
  assert.equal(first.Attributes.ApproximateReceiveCount, "1");
  const [second] = await receive(QueueUrl, { WaitTimeSeconds: 5 }); // a long poll wakes for what expires
  assert.equal(second.Attributes.ApproximateReceiveCount, "2");
  await client.send(new ChangeMessageVisibilityCommand({ QueueUrl, ReceiptHandle: second.ReceiptHandle, VisibilityTimeout: 0 }));
  const [third] = await receive(QueueUrl);
  assert.equal(third.MessageId, first.MessageId);
  await client.send(new DeleteMessageCommand({ QueueUrl, ReceiptHandle: third.ReceiptHandle }));
  assert.equal((await receive(QueueUrl)).length, 0);
});

test("FIFO dedup and order", async () => {
  const QueueUrl = await queue({ FifoQueue: "true" });
  const send = (id, group) => client.send(new SendMessageCommand({ QueueUrl, MessageBody: id, MessageGroupId: group, MessageDeduplicationId: id }));
  const first = await send("1", "g");
  const again = await send("1", "g");
  assert.equal(again.MessageId, first.MessageId);
  assert.equal(again.SequenceNumber, first.SequenceNumber);
  await send("2", "g");
  const [head] = await receive(QueueUrl, { MaxNumberOfMessages: 1 });
  assert.equal(head.Body, "1");
  assert.equal((await receive(QueueUrl)).length, 0, "the group is blocked while its head is in flight");
  await client.send(new DeleteMessageCommand({ QueueUrl, ReceiptHandle: head.ReceiptHandle }));
  assert.deepEqual((await receive(QueueUrl)).map((m) => m.Body), ["2"]);
});

test("errors have the vendor's types", async () => {
  await assert.rejects(client.send(new GetQueueUrlCommand({ QueueName: unique("nowhere") })), QueueDoesNotExist);
});
