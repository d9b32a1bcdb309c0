// kafkajs against the model of Kafka.
import assert from "node:assert/strict";
import net from "node:net";
import { test } from "node:test";
import { Kafka, logLevel } from "kafkajs";
import { endpoint, unique } from "./endpoints.mjs";

const kafka = new Kafka({ brokers: endpoint("kafka").env.KAFKA_BOOTSTRAP_SERVERS.split(","), logLevel: logLevel.NOTHING });

async function topic() {
  const name = unique("node");
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic: name, numPartitions: 1 }], waitForLeaders: true });
  await admin.disconnect();
  return name;
}

// consume runs one consumer of a group until handle has returned true.
async function consume(topic, groupId, handle) {
  const consumer = kafka.consumer({ groupId, sessionTimeout: 6000, retry: { retries: 5, initialRetryTime: 50 } });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => { if (!payload.restart) reject(payload.error); });
    consumer.run({ eachMessage: async ({ message }) => { if (await handle(message)) resolve(); } }).catch(reject);
  });
  await consumer.disconnect(); // commits what was handled
}

test("publish, receive, settle, redelivery", async () => {
  const name = await topic();
  const producer = kafka.producer({ idempotent: true });
  await producer.connect();
  const [sent] = await producer.send({ topic: name, messages: [
    { key: "k", value: "one", headers: { a: Buffer.from([0, 255]) } }, { key: "k", value: "two" }, { key: "k", value: "three" },
  ] });
  assert.equal(sent.baseOffset, "0");
  await producer.disconnect();
  const group = unique("group");
  const seen = [];
  let failed = false;
  await consume(name, group, (m) => {
    seen.push(`${m.value}`);
    if (`${m.value}` === "one") assert.deepEqual(m.headers.a, Buffer.from([0, 255]));
    if (`${m.value}` === "two" && !failed) {
      failed = true;
      throw new Error("not yet"); // what wasn't handled comes again
    }
    return `${m.value}` === "two";
  });
  assert.deepEqual(seen.filter((v) => v !== "three"), ["one", "two", "two"]);
  const rest = [];
  await consume(name, group, (m) => rest.push(`${m.value}`));
  assert.deepEqual(rest, ["three"], "the group goes on behind what it has committed");
});

test("a transaction is seen whole or not at all", async () => {
  const name = await topic();
  const producer = kafka.producer({ transactionalId: unique("tx"), maxInFlightRequests: 1, idempotent: true });
  await producer.connect();
  const lost = await producer.transaction();
  await lost.send({ topic: name, messages: [{ value: "aborted" }] });
  await lost.abort();
  const kept = await producer.transaction();
  await kept.send({ topic: name, messages: [{ value: "committed" }] });
  await kept.commit();
  await producer.disconnect();
  const seen = [];
  await consume(name, unique("group"), (m) => seen.push(`${m.value}`));
  assert.deepEqual(seen, ["committed"]);
});

// The connection ends as the broker's answer to the first Produce comes in: the client
// can't know that the records are stored, and sends them again.
function losingAnswer() {
  let lost = 0;
  const socketFactory = ({ host, port, onConnect }) => {
    const socket = net.connect({ host, port }, onConnect);
    const write = socket.write.bind(socket);
    let produce; // the correlation ID of the request
    socket.write = (data, ...rest) => {
      // Length, API key (0 is Produce), version, correlation ID.
      if (lost === 0 && data.length > 12 && data.readInt16BE(4) === 0) produce = data.readInt32BE(8);
      return write(data, ...rest);
    };
    const emit = socket.emit.bind(socket);
    socket.emit = (event, data, ...rest) => {
      if (event === "data" && lost === 0 && produce !== undefined && data.readInt32BE(4) === produce) {
        lost++;
        socket.destroy(new Error("the answer is lost"));
        return true;
      }
      return emit(event, data, ...rest);
    };
    return socket;
  };
  return { socketFactory, lost: () => lost };
}

for (const [idempotent, want] of [[true, ["one", "two"]], [false, ["one", "two", "one", "two"]]]) {
  test(`a lost answer: ${idempotent ? "once with" : "twice without"} an idempotent producer`, async () => {
    const name = await topic();
    const losing = losingAnswer();
    const client = new Kafka({
      brokers: endpoint("kafka").env.KAFKA_BOOTSTRAP_SERVERS.split(","), logLevel: logLevel.NOTHING, socketFactory: losing.socketFactory,
    });
    const producer = client.producer({ idempotent, maxInFlightRequests: 1, retry: { retries: 5, initialRetryTime: 50 } });
    await producer.connect();
    await producer.send({ topic: name, messages: [{ value: "one" }, { value: "two" }] });
    assert.equal(losing.lost(), 1);
    await producer.send({ topic: name, messages: [{ value: "end" }] });
    await producer.disconnect();
    const seen = [];
    await consume(name, unique("group"), (m) => seen.push(`${m.value}`) && `${m.value}` === "end");
    assert.deepEqual(seen, [...want, "end"]);
  });
}
