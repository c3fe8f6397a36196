// These tests need the servers and the data that tests/integration/clients/conftest.py describes.
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { connect as dial } from "node:net";
import { join } from "node:path";
import { after, test } from "node:test";
import { create, equals, fromBinary, type DescMessage, type Message, type MessageInitShape } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import {
  ApplyRotaryRequestSchema,
  connect,
  DataType,
  GenerateTableRequestSchema,
  Layout,
  narrow,
  Pairing,
  PosencError,
  PositionalEncodingService,
  ServerLimitsSchema,
  TableForm,
  TensorSchema,
  tensor,
  values,
  type ApplyRotaryRequest,
  type Client,
  type GetServerInfoResponse,
  type Options,
} from "../src/index.js";

type Rotation = Exclude<MessageInitShape<typeof ApplyRotaryRequestSchema>, ApplyRotaryRequest>;

const setting = (name: string) => process.env[`POSENC_TEST_${name}`] ?? assert.fail(`POSENC_TEST_${name} must be set`);
const data = (name: string) => readFileSync(join(setting("DATA"), name));
const clients: Client[] = [];
after(() => clients.forEach((client) => client.close()));

function peer(name: string, options: Options = {}): Client {
  clients.push(connect(setting(name), options));
  return clients.at(-1)!;
}

function elements(count: number): Float32Array {
  return Float32Array.from({ length: count }, (_, i) => (((37 * i + 11) % 257) - 128) / 64);
}

function operand(dtype: DataType.FP32 | DataType.BF16, tokens: number, heads: number) {
  const x = elements(tokens * heads * 128);
  const shape = [1, tokens, heads, 128];
  return { tensor: dtype === DataType.BF16 ? narrow(dtype, x, shape) : tensor(x, shape) };
}

const settings: Rotation["rotary"] = {
  source: {
    case: "settings",
    value: {
      frequencies: { case: "ropeParameters", value: { ropeType: "default" } },
      rotaryDim: 128n,
      inputPairing: Pairing.HALF_SPLIT,
    },
  },
};

function rotation(dtype: DataType.FP32 | DataType.BF16, tokens: number, more: Rotation = {}): Rotation {
  return {
    rotary: settings,
    positions: { source: { case: "offset", value: 100_000n } },
    layout: Layout.BSHD,
    q: operand(dtype, tokens, 32),
    ...more,
  } as Rotation;
}

const model = (configJson: Uint8Array<ArrayBuffer>): Rotation["rotary"] => ({
  source: { case: "model", value: { configJson } },
});

async function refusal(call: Promise<unknown>): Promise<PosencError> {
  const error = await call.then(
    () => assert.fail("the call was not refused"),
    (error: unknown) => error,
  );
  assert.ok(error instanceof PosencError, String(error));
  return error;
}

// Connecting to RESTART stops the server at RESTARTING and starts another one there; the connection ends when it serves.
function restart(): Promise<void> {
  const [host, port] = setting("RESTART").split(":");
  return new Promise((resolve, reject) => dial(Number(port), host).on("close", resolve).on("error", reject).resume());
}

test("restarts of the server fail no call", async () => {
  let done = false;
  const callers = Array.from({ length: 4 }, async () => {
    const client = peer("RESTARTING", { channel: { "grpc.use_local_subchannel_pool": 1 } });
    for (let call = 0; !done; call++) await client.applyRotary(rotation(DataType.FP32, 1 + 63 * (call % 2)));
  });
  for (let n = 0; n < 3; n++) await Promise.race([restart(), Promise.all(callers)]);
  done = true;
  await Promise.all(callers);
});

test("rotation by a config gives the bytes of every other client", async () => {
  for (const [name, dtype] of [
    ["rotated.fp32", DataType.FP32],
    ["rotated.bf16", DataType.BF16],
  ] as const) {
    const answer = await peer("ADDRESS").applyRotary(rotation(dtype, 3, { rotary: model(data("config.json")) }));
    assert.ok(data(name).equals(answer.q!.data), `${name}: other bytes`);
  }
});

// Pair k of a half-split row is rotated by position * 10000^(-k/64). The sum of two float32 products has an error below
// 3 units of 2^-24 of |x0| + |x1| <= 4; bfloat16 adds half of its own unit.
test("rotation is near the formula", async () => {
  for (const [dtype, bound] of [
    [DataType.FP32, 2 ** -20],
    [DataType.BF16, 2 ** -7 + 2 ** -20],
  ] as const) {
    const answer = await peer("ADDRESS").applyRotary(rotation(dtype, 3));
    const x = elements(3 * 32 * 128);
    values(answer.q, Float32Array).forEach((got, i) => {
      const row = i - (i % 128);
      const k = i % 64;
      const angle = (100_000 + Math.floor(i / 4096)) * 10000 ** (-k / 64);
      const [sin, cos, x0, x1] = [Math.sin(angle), Math.cos(angle), x[row + k], x[row + k + 64]];
      const want = i % 128 < 64 ? x0 * cos - x1 * sin : x1 * cos + x0 * sin;
      assert.ok(Math.abs(got - want) <= bound, `element ${i} is ${got}, must be ${want}`);
    });
  }
});

test("rounding", () => {
  const records = data("rounding");
  for (let at = 0; at < records.length; at += 8) {
    const value = records.readFloatLE(at);
    for (const [dtype, want] of [
      [DataType.FP16, records.subarray(at + 4, at + 6)],
      [DataType.BF16, records.subarray(at + 6, at + 8)],
    ] as const) {
      assert.deepEqual(
        Buffer.from(narrow(dtype, Float32Array.of(value), [1]).data),
        want,
        `${DataType[dtype]} of ${value}`,
      );
      const wide = values(create(TensorSchema, { dtype, shape: [1n], data: want }), Float32Array);
      assert.deepEqual(Buffer.from(narrow(dtype, wide, [1]).data), want, `${DataType[dtype]} is read as ${wide}`);
    }
  }
});

test("tensors of every type, aligned or not", () => {
  for (const array of [
    Float32Array.of(1.5, -2),
    Float64Array.of(1.1),
    Int32Array.of(-1, 2),
    BigInt64Array.of(-1n << 40n),
    Uint8Array.of(1, 0),
  ]) {
    const { dtype, shape, data } = tensor(array, [array.length]);
    for (let shift = 0; shift < 8; ++shift) {
      const moved = Buffer.alloc(64).subarray(shift, shift + data.length);
      moved.set(data);
      assert.deepEqual(
        values(create(TensorSchema, { dtype, shape, data: moved }), array.constructor as typeof Float32Array),
        array,
      );
    }
  }
  const view = new Float32Array(8).subarray(3, 5);
  view.set([7, 8]);
  assert.deepEqual(values(tensor(view, [2]), Float32Array), Float32Array.of(7, 8));
  assert.throws(() => values(tensor(view, [2]), Float64Array), /dtype is FP32, must be FP64/);
  assert.throws(() => values(tensor(view, [3]), Float32Array), /data is 8 bytes, must be 12/);
});

test("every call", async () => {
  const client = peer("ADDRESS");
  const called = new Set<string>();
  for (const entry of readdirSync(join(setting("DATA"), "calls"))) {
    const method = PositionalEncodingService.methods.find((method) => method.name === entry.split("-")[1]);
    assert.ok(method, entry);
    called.add(method.name);
    const request = fromBinary(method.input, data(`calls/${entry}/request`));
    const call = (client as unknown as Record<string, (request: Message) => unknown>)[method.localName];
    const answers = method.methodKind === "unary" ? [await call(request)] : call(request);
    let i = 0;
    for await (const got of answers as AsyncIterable<Message>) {
      const want = fromBinary<DescMessage>(method.output, data(`calls/${entry}/answer-${i}`));
      const same =
        method.name === "GetServerInfo"
          ? equals(ServerLimitsSchema, (got as GetServerInfoResponse).limits!, (want as GetServerInfoResponse).limits!)
          : equals<DescMessage>(method.output, got, want);
      assert.ok(same, `${entry}: answer ${i} differs`);
      ++i;
    }
    assert.ok(i > 0 && !existsSync(join(setting("DATA"), `calls/${entry}/answer-${i}`)), `${entry}: ${i} answers`);
  }
  assert.equal(called.size, 15, "all methods but StreamApplyRotary");
});

test("a refusal has details", async () => {
  const config = Buffer.from(data("config.json").toString().replace("500000.0", "-1"));
  const refused = await refusal(peer("ADDRESS").applyRotary(rotation(DataType.FP32, 1, { rotary: model(config) })));
  assert.equal(refused.code, status.INVALID_ARGUMENT);
  assert.equal(refused.reason, "OUT_OF_RANGE");
  assert.equal(refused.field, "rotary.model.config_json.rope_theta");
  assert.equal(refused.value, "-1");
  assert.match(refused.limit, /^must be/);
  assert.equal(refused.started, false);
});

test("a busy server says when to try again", async () => {
  const client = peer("BUSY", { retries: false });
  const { q, ...rest } = rotation(DataType.FP32, 1);
  const header = { ...rest, q: { tensor: { dtype: DataType.FP32, shape: [1n, 1n, 32n, 128n] } } } as Rotation;
  let close = () => {};
  const closed = new Promise<void>((resolve) => (close = resolve));
  async function* parts() {
    yield { part: { case: "header" as const, value: header } };
    await closed;
  }
  for await (const _ of client.streamApplyRotary(parts())) {
    // From now on the server has its one call.
    const refused = await refusal(client.applyRotary(rotation(DataType.FP32, 1)));
    assert.equal(refused.code, status.UNAVAILABLE);
    assert.equal(refused.reason, "OVERLOADED");
    assert.equal(refused.started, false);
    assert.equal(refused.pushbackMs, 100);
    break;
  }
  close();
});

const wish = (wish: string): Rotation => ({ hints: { requestId: `${wish} typescript ${process.hrtime.bigint()}` } });

test("refused calls are retried", async () => {
  const client = peer("REFUSING");
  await client.applyRotary(rotation(DataType.FP32, 512, wish("refuse 4 pushback 1"))); // 8 MiB
  const forbidden = await refusal(client.applyRotary(rotation(DataType.FP32, 1, wish("refuse 1 pushback -1"))));
  assert.equal(forbidden.pushbackMs, -1);
  const once = await refusal(
    peer("REFUSING", { retries: false }).applyRotary(rotation(DataType.FP32, 1, wish("refuse 1 pushback 1"))),
  );
  assert.equal(once.pushbackMs, 1);
});

test("time limits and cancellation", async () => {
  const client = peer("ADDRESS");
  assert.equal(
    (await refusal(client.applyRotary(rotation(DataType.FP32, 1), { timeoutMs: -1 }))).code,
    status.DEADLINE_EXCEEDED,
  );
  assert.equal(
    (await refusal(client.applyRotary(rotation(DataType.FP32, 1), { signal: AbortSignal.abort() }))).code,
    status.CANCELLED,
  );
});

function table(count: bigint, dtype: DataType, form: TableForm): MessageInitShape<typeof GenerateTableRequestSchema> {
  return { rotary: settings, positions: { source: { case: "offset", value: 0n } }, count, dtype, form };
}

// The last bit of a float64 angle is below 2^-35 at position 131,071.
test("an answer of 64 MiB", async () => {
  const answer = await peer("ADDRESS").generateTable(table(131_072n, DataType.FP32, TableForm.HALF_WIDTH));
  const [cos, sin] = [values(answer.cos, Float32Array), values(answer.sin, Float32Array)];
  assert.equal(cos.byteLength + sin.byteLength, 64 << 20);
  for (let row = 0; row < 131_072; row += 4099) {
    for (let k = 0; k < 64; ++k) {
      const angle = row * 10000 ** (-k / 64);
      const error = Math.max(
        Math.abs(cos[64 * row + k] - Math.cos(angle)),
        Math.abs(sin[64 * row + k] - Math.sin(angle)),
      );
      assert.ok(error <= 2 ** -25 + 1e-9, `row ${row}, pair ${k}: error ${error}`);
    }
  }
});

test("chunks give the bytes of one call", async () => {
  for (const dtype of [DataType.FP32, DataType.BF16] as const) {
    const k = operand(dtype, 40, 8);
    const whole = await peer("ADDRESS").applyRotary(rotation(dtype, 40, { k }));
    // The second one ends the first stream early.
    for (const name of ["ADDRESS", "REFUSING"]) {
      const request = rotation(dtype, 40, { k, ...wish("refuse 1 pushback 1") });
      const inChunks = await peer(name).rotateInChunks(request, { chunkBytes: 100_000 });
      assert.ok(
        equals(TensorSchema, whole.q!, inChunks.q!) && equals(TensorSchema, whole.k!, inChunks.k!),
        `${name}: other bytes`,
      );
      assert.equal(inChunks.info!.rotaryDim, 128n);
    }
  }
});

test("tiles give the bytes of one call", async () => {
  const request = table(100n, DataType.BF16, TableForm.DUPLICATED);
  const whole = await peer("ADDRESS").generateTable(request);
  const tiles: Uint8Array[] = [];
  for await (const tile of peer("ADDRESS").streamTable({ table: request, rowsPerTile: 7n })) {
    assert.equal(Number(tile.rowBegin), Buffer.concat(tiles).length / 256);
    tiles.push(tile.cos!.data);
  }
  assert.ok(Buffer.concat(tiles).equals(whole.cos!.data), "other bytes");
});

test("an error in a stream of requests ends the call", async () => {
  const wrong = { part: { case: "header", value: { direktion: 3 } } } as never;
  await assert.rejects(async () => {
    for await (const _ of peer("ADDRESS").streamApplyRotary([wrong]));
  }, /direktion does not exist/);
});

test("TLS with a client's certificate", async () => {
  const mine = {
    ca: data("ca.pem"),
    certificate: data("client.pem"),
    key: data("client.key"),
    serverName: "server.example",
  };
  await peer("TLS", { tls: mine }).getServerInfo({});
  for (const wrong of [{ ca: mine.ca }, { ...mine, serverName: "other.example" }]) {
    const refused = await refusal(peer("TLS", { tls: wrong, retries: false }).getServerInfo({}));
    assert.equal(refused.code, status.UNAVAILABLE);
    assert.equal(refused.reason, "");
  }
});
