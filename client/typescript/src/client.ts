import { readFileSync } from "node:fs";
import {
  fromBinary,
  toBinary,
  type DescMessage,
  type DescMethod,
  type MessageInitShape,
  type MessageShape,
} from "@bufbuild/protobuf";
import * as grpc from "@grpc/grpc-js";
import { typed } from "./error.js";
import {
  PositionalEncodingService,
  type ApplyRotaryRequestSchema,
  type ApplyRotaryResponse,
} from "./gen/posenc/v1/service_pb.js";
import { message } from "./message.js";
import { rotateInChunks } from "./rotate.js";

/** PEM texts. Without any of them, the channel trusts Node's CAs and has no certificate of its own. */
export interface Tls {
  /** CAs of the server's certificate. */
  ca?: Buffer;
  /** The client's certificate, its intermediate CAs, and its key. */
  certificate?: Buffer;
  key?: Buffer;
  /** Name that the server's certificate must have, if it is not that of the address. */
  serverName?: string;
}

export interface Options {
  /** Absent: not encrypted, for a server on this machine only. */
  tls?: Tls;
  /**
   * False turns off the retries of UNAVAILABLE calls. Calls with outputs in shared memory need it: after a
   * lost connection the first attempt may still write there, also over a later call's.
   */
  retries?: boolean;
  /** Further options of gRPC's channel; they override the others. */
  channel?: grpc.ChannelOptions;
}

export interface CallOptions {
  /** Time limit for the call with all its attempts. Milliseconds. Absent: none. */
  timeoutMs?: number;
  /** Cancels the call. */
  signal?: AbortSignal;
}

type Init<D = DescMessage> = D extends DescMessage ? MessageInitShape<D> : never;
type Answer<D> = D extends DescMessage ? MessageShape<D> : never;
type Call<M> = M extends { methodKind: "unary"; input: infer I; output: infer O }
  ? (request: Init<I>, options?: CallOptions) => Promise<Answer<O>>
  : M extends { methodKind: "server_streaming"; input: infer I; output: infer O }
    ? (request: Init<I>, options?: CallOptions) => AsyncIterable<Answer<O>>
    : M extends { methodKind: "bidi_streaming"; input: infer I; output: infer O }
      ? (requests: AsyncIterable<Init<I>> | Iterable<Init<I>>, options?: CallOptions) => AsyncIterable<Answer<O>>
      : never;
type Methods = typeof PositionalEncodingService.method;

/** A connection to one server, with the service's methods. Errors of calls are PosencError. */
export type Client = { readonly [M in keyof Methods]: Call<Methods[M]> } & {
  /**
   * Does what applyRotary does, for tensors of any size: it sends q and k in chunks of about `chunkBytes` (default
   * 4 MiB), which are whole head rows. If a stream ends early, because the server drains or limits its time, the chunks
   * without an answer go into a new stream, as long as each stream answers at least one.
   */
  rotateInChunks(
    request: MessageInitShape<typeof ApplyRotaryRequestSchema>,
    options?: CallOptions & { chunkBytes?: number },
  ): Promise<ApplyRotaryResponse>;
  /** Ends the connection. */
  close(): void;
};

const serviceConfig = readFileSync(new URL("../../service_config.json", import.meta.url), "utf8");

/**
 * Makes a client of the server at a gRPC target: "localhost:50051", "unix:/run/posenc.sock",
 * "dns:///posenc.example:443". It connects with the first call. Messages have no limit but gRPC's 2 GiB. A call that
 * the server refuses as UNAVAILABLE is tried up to five times, after the time that the server asks for.
 */
export function connect(address: string, options: Options = {}): Client {
  const { tls } = options;
  const credentials = tls
    ? grpc.credentials.createSsl(tls.ca ?? null, tls.key ?? null, tls.certificate ?? null)
    : grpc.credentials.createInsecure();
  const channel = new grpc.Client(address, credentials, {
    "grpc.max_receive_message_length": -1,
    "grpc.max_send_message_length": -1,
    "grpc.keepalive_time_ms": 30_000,
    "grpc.keepalive_timeout_ms": 20_000,
    "grpc.enable_retries": options.retries === false ? 0 : 1,
    "grpc.service_config": serviceConfig,
    // A call above these limits is not retried.
    "grpc.per_rpc_retry_buffer_size": 2 ** 31,
    "grpc.retry_buffer_size": 2 ** 31,
    ...(tls?.serverName ? { "grpc.ssl_target_name_override": tls.serverName } : {}),
    ...options.channel,
  });
  const methods = PositionalEncodingService.methods.map((method) => [method.localName, bind(channel, method)]);
  const client: Client = {
    ...Object.fromEntries(methods),
    rotateInChunks: (request, options) => rotateInChunks(client, request, options),
    close: () => channel.close(),
  };
  return client;
}

function bind(channel: grpc.Client, method: DescMethod): unknown {
  const path = `/${method.parent.typeName}/${method.name}`;
  // Messages were checked before, because gRPC turns an exception in here into a status.
  const serialize = (request: MessageShape<DescMessage>) => {
    const bytes = toBinary(method.input, request);
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  };
  const deserialize = (bytes: Buffer) => fromBinary(method.output, bytes);
  const arguments_ = [path, serialize, deserialize] as const;

  if (method.methodKind === "unary") {
    return async (request: Init, options: CallOptions = {}) => {
      const checked = message(method.input, request);
      return await new Promise((resolve, reject) => {
        const ended = (error: grpc.ServiceError | null, answer?: unknown) =>
          error ? reject(typed(error)) : resolve(answer);
        const call = channel.makeUnaryRequest(...arguments_, checked, new grpc.Metadata(), deadline(options), ended);
        cancelWith(options.signal, call);
      });
    };
  }
  if (method.methodKind === "server_streaming") {
    return (request: Init, options: CallOptions = {}) => {
      const checked = message(method.input, request);
      const call = channel.makeServerStreamRequest(...arguments_, checked, deadline(options));
      return received(cancelWith(options.signal, call));
    };
  }
  return (requests: AsyncIterable<Init> | Iterable<Init>, options: CallOptions = {}) => {
    const call = channel.makeBidiStreamRequest(...arguments_, deadline(options));
    return received(cancelWith(options.signal, call), send(call, method.input, requests));
  };
}

function deadline({ timeoutMs }: CallOptions): grpc.CallOptions {
  return timeoutMs === undefined ? {} : { deadline: Date.now() + timeoutMs };
}

function cancelWith<C extends { cancel(): void }>(signal: AbortSignal | undefined, call: C): C {
  if (signal?.aborted) call.cancel();
  signal?.addEventListener("abort", () => call.cancel(), { once: true });
  return call;
}

/** Yields a stream's answers. Ending the loop early cancels the call. */
async function* received<T>(call: grpc.ClientReadableStream<T>, sent?: Promise<void>): AsyncGenerator<T> {
  try {
    for await (const answer of call) yield answer;
    await sent;
  } catch (error) {
    throw typed(error);
  } finally {
    call.cancel();
  }
}

/** Sends requests as fast as the server takes them. An error in them ends the call and is thrown. */
async function send(
  call: grpc.ClientDuplexStream<MessageShape<DescMessage>, unknown>,
  schema: DescMessage,
  requests: AsyncIterable<Init> | Iterable<Init>,
): Promise<void> {
  let ended = false;
  const end = new Promise<void>((resolve) => call.once("status", () => resolve(void (ended = true))));
  try {
    for await (const request of requests) {
      if (ended) return;
      if (!call.write(message(schema, request))) {
        await Promise.race([end, new Promise((resolve) => call.once("drain", resolve))]);
      }
    }
    call.end();
  } catch (error) {
    call.destroy(error as Error);
  }
}
