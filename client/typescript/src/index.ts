/**
 * Calls a posenc-server, which computes positional encodings for attention.
 *
 * `connect` makes a client with the service's methods. Requests are plain objects; a field or enum value that does not
 * exist is a type error, and an exception in untyped code. `tensor`, `narrow` and `values` convert tensors.
 */
export { connect, type CallOptions, type Client, type Options, type Tls } from "./client.js";
export { PosencError } from "./error.js";
export { message } from "./message.js";
export { narrow, tensor, values } from "./tensor.js";
export * from "./gen/posenc/v1/bias_pb.js";
export * from "./gen/posenc/v1/compare_pb.js";
export * from "./gen/posenc/v1/diagnose_pb.js";
export * from "./gen/posenc/v1/embedding_pb.js";
export * from "./gen/posenc/v1/info_pb.js";
export * from "./gen/posenc/v1/relative_pb.js";
export * from "./gen/posenc/v1/rotary_pb.js";
export * from "./gen/posenc/v1/service_pb.js";
export * from "./gen/posenc/v1/tensor_pb.js";
