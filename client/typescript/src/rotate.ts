import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import type { CallOptions, Client } from "./client.js";
import { PosencError } from "./error.js";
import { Operand, type RotaryOperand } from "./gen/posenc/v1/rotary_pb.js";
import {
  ApplyRotaryRequestSchema,
  ApplyRotaryResponseSchema,
  type ApplyRotaryRequest,
  type ApplyRotaryResponse,
  type RotaryChunk,
} from "./gen/posenc/v1/service_pb.js";
import type { Tensor } from "./gen/posenc/v1/tensor_pb.js";
import { message } from "./message.js";
import { elementBytes } from "./tensor.js";

interface Chunk {
  operand: Operand;
  offset: number;
  input: Uint8Array;
  output: Uint8Array;
}

export async function rotateInChunks(
  client: Client,
  init: MessageInitShape<typeof ApplyRotaryRequestSchema>,
  options: CallOptions & { chunkBytes?: number } = {},
): Promise<ApplyRotaryResponse> {
  const request = message(ApplyRotaryRequestSchema, init);
  const chunkBytes = options.chunkBytes ?? 4 << 20;
  const answer = create(ApplyRotaryResponseSchema);
  const pending: Chunk[] = []; // chunks without an answer
  answer.q = cut(Operand.QUERY, request.q, chunkBytes, pending);
  answer.k = cut(Operand.KEY, request.k, chunkBytes, pending);
  const header = { ...request, q: withoutData(request.q), k: withoutData(request.k) };
  const end = options.timeoutMs === undefined ? Infinity : Date.now() + options.timeoutMs;
  for (;;) {
    const before = pending.length;
    try {
      const timeoutMs = end === Infinity ? undefined : end - Date.now();
      await stream(client, header, pending, answer, { ...options, timeoutMs });
      return answer;
    } catch (error) {
      if (!(error instanceof PosencError) || !resumable(error) || pending.length === before) throw error;
      const wait = error.pushbackMs ?? 100;
      if (Date.now() + wait >= end) throw error;
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
}

/** True if the server refused the stream for now, a proxy ended it (UNKNOWN), or the server's own time limit for one
 * stream has passed. */
function resumable(error: PosencError): boolean {
  if ((error.pushbackMs ?? 0) < 0) return false;
  return error.code === status.UNAVAILABLE || error.code === status.UNKNOWN ||
    (error.code === status.DEADLINE_EXCEEDED && error.resume !== undefined);
}

/** Cuts an operand into chunks and returns the tensor that their answers fill. */
function cut(operand: Operand, from: RotaryOperand | undefined, chunkBytes: number, pending: Chunk[]) {
  if (!from?.tensor) return undefined;
  const { data, shape, dtype }: Tensor = from.tensor;
  const row = Math.max(elementBytes(dtype) * Number(shape.at(-1) ?? 1n), 1);
  const size = Math.max(Math.floor(chunkBytes / row), 1) * row;
  const output = new Uint8Array(data.length);
  for (let offset = 0; offset < data.length; offset += size) {
    pending.push({
      operand,
      offset,
      input: data.subarray(offset, offset + size),
      output: output.subarray(offset, offset + size),
    });
  }
  return { ...from.tensor, data: output };
}

function withoutData(operand: RotaryOperand | undefined): RotaryOperand | undefined {
  return operand?.tensor && { ...operand, tensor: { ...operand.tensor, data: new Uint8Array() } };
}

/** Sends the pending chunks in one stream and removes those that it answers. */
async function stream(
  client: Client,
  header: ApplyRotaryRequest,
  pending: Chunk[],
  answer: ApplyRotaryResponse,
  options: CallOptions,
): Promise<void> {
  const chunks = pending.map(({ operand, offset, input }) => {
    const rows = { byteOffset: BigInt(offset), data: input as Uint8Array<ArrayBuffer> };
    return { part: { case: "chunk" as const, value: { operand, rows } } };
  });
  const parts = [{ part: { case: "header" as const, value: header } }, ...chunks];
  for await (const { info, chunk } of client.streamApplyRotary(parts, options)) {
    if (info) answer.info = info;
    if (chunk) take(chunk, pending);
  }
  if (pending.length > 0) throw new Error(`the server ended the stream before it answered ${pending.length} chunks`);
}

/** Copies an answer to its place. */
function take({ operand, rows }: RotaryChunk, pending: Chunk[]): void {
  const offset = Number(rows?.byteOffset);
  const data = rows?.data ?? new Uint8Array();
  const index = pending.findIndex(
    (chunk) => chunk.operand === operand && chunk.offset === offset && chunk.output.length === data.length,
  );
  if (index < 0) throw new Error(`the server answered ${Operand[operand]} at byte ${offset}, which was not sent`);
  pending[index].output.set(data);
  pending.splice(index, 1);
}
