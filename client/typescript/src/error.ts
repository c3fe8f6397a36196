import { fromBinary } from "@bufbuild/protobuf";
import { status, type ServiceError } from "@grpc/grpc-js";
import { ErrorInfoSchema, RichStatusSchema, type ErrorInfo } from "./gen/posenc/v1/error_pb.js";

/**
 * Error of a call. Strings are empty where the server gave no such detail; posenc/v1/error.proto says what they mean.
 */
export class PosencError extends Error {
  /** gRPC's status code: `status` of @grpc/grpc-js. */
  readonly code: status;
  /** OUT_OF_RANGE, MISSING, OVERLOADED, ...; empty: the error is not from the service itself. */
  readonly reason: string;
  readonly field: string;
  readonly value: string;
  readonly limit: string;
  readonly otherField: string;
  /** Place in a config.json that cannot be parsed, from 1. */
  readonly line?: number;
  readonly column?: number;
  /** True if work on the request had begun. */
  readonly started: boolean;
  /** Milliseconds after which to try again; negative: do not retry. Absent: the server said nothing. */
  readonly pushbackMs?: number;
  /** Rotations in chunks: operand, and its first byte that was not answered. */
  readonly resume?: { operand: string; byteOffset: number };

  constructor(error: ServiceError) {
    super(`${status[error.code]}: ${error.details}`, { cause: error });
    this.name = "PosencError";
    this.code = error.code;
    const info = infoOf(error);
    const text = (key: string) => info?.metadata[key] ?? "";
    const number = (key: string) => (text(key) ? Number(text(key)) : undefined);
    this.reason = info?.reason ?? "";
    this.field = text("field");
    this.value = text("value");
    this.limit = text("limit");
    this.otherField = text("other_field");
    this.line = number("line");
    this.column = number("column");
    this.started = text("started") === "true";
    this.pushbackMs = pushbackOf(error);
    const byteOffset = number("byte_offset");
    if (byteOffset !== undefined) this.resume = { operand: text("operand"), byteOffset };
  }
}

/** Returns gRPC's errors as PosencError, and others as they are. */
export function typed(error: unknown): unknown {
  const fromGrpc = error instanceof Error && "code" in error && "metadata" in error;
  return fromGrpc ? new PosencError(error as ServiceError) : error;
}

function infoOf(error: ServiceError): ErrorInfo | undefined {
  const [bytes] = error.metadata.get("grpc-status-details-bin");
  if (!(bytes instanceof Uint8Array)) return undefined;
  return fromBinary(RichStatusSchema, bytes)
    .details.filter((detail) => detail.typeUrl === "type.googleapis.com/google.rpc.ErrorInfo")
    .map((detail) => fromBinary(ErrorInfoSchema, detail.value))
    .find((info) => info.domain === "posenc");
}

/** A value that is no number forbids retries, as in gRPC's own clients. */
function pushbackOf(error: ServiceError): number | undefined {
  const [value] = error.metadata.get("grpc-retry-pushback-ms");
  if (value === undefined) return undefined;
  return /^\d+$/.test(value.toString()) ? Number(value) : -1;
}
