/* C interface of libposenc.so: computes the service's methods in the calling process. Usable from C11, C++ and every
 * language that can call C.
 *
 *   posenc_context* context = posenc_create(NULL);
 *   posenc_input input = {"q.tensor", q, q_bytes};
 *   posenc_output output = {rotated, q_bytes};
 *   posenc_call call = {sizeof call, "ApplyRotary", request, request_bytes, &input, 1, &output, 1, 0};
 *   const posenc_answer* answer = posenc_run(context, &call);
 *   if (answer->code != 0) fprintf(stderr, "%s\n", answer->error->message);
 *   posenc_free(answer);
 *
 * Requests and answers are messages of posenc.v1 (proto/posenc/v1/service.proto) as their bytes on the wire. Tensors
 * may lie beside them, in memory of the caller's, and are then read and written where they are, without a copy. Values,
 * shapes, limits and errors are those of the service. Strings are NUL-terminated UTF-8.
 *
 * Versions: a struct that begins with struct_size can grow. The caller sets struct_size to sizeof of the struct it was
 * compiled with, and the library reads no field beyond it; in structs that the library fills, struct_size says how far
 * they go. Everything else is fixed for an ABI version. No C++ exception leaves a function. */
#ifndef POSENC_C_API_POSENC_H_
#define POSENC_C_API_POSENC_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Incremented by a change that breaks callers. */
#define POSENC_ABI_VERSION 1u

/* Returns the library's POSENC_ABI_VERSION. A caller must not call anything else if its own differs. Thread-safe. */
uint32_t posenc_abi_version(void);

/* Returns posenc's version, e.g. "0.1.0". Owned by the library, valid forever. Thread-safe. */
const char* posenc_version(void);

/* Threads and limits of calls. Its functions are thread-safe, and calls may run at the same time. */
typedef struct posenc_context posenc_context;

typedef struct posenc_options {
  size_t struct_size;
  /* Number of computing threads, with the caller's. 0: as many as the cgroup's quota and the affinity mask allow. */
  size_t threads;
  /* Bytes of one request with its inputs, or of a part of a stream, and of the tensors of one answer. > 0; 0: half of
   * the machine's memory. */
  int64_t max_request_bytes;
  int64_t max_output_bytes;
} posenc_options;

/* Makes a context. `options` may be NULL, for the defaults; it is not retained. Returns NULL if an option is out of
 * range or if memory or threads are lacking. Thread-safe. A forked child may use and destroy its parent's contexts,
 * which start threads of their own there. It must not use a stream that another thread of the parent was using. */
posenc_context* posenc_create(const posenc_options* options);

/* Ends the context's threads and frees it. No call may be running in it. NULL is ignored. Answers remain valid. */
void posenc_destroy(posenc_context* context);

/* The data of one tensor of a request, in the caller's memory. */
typedef struct posenc_input {
  /* Path of the tensor in the request, as error details spell it: "q.tensor", "positions.ids", "method.table". The
   * message holds its dtype and shape, and no data. */
  const char* tensor;
  /* Little-endian and row-major, without padding; needs no alignment. Must not change during the call. */
  const void* data;
  size_t size; /* bytes */
} posenc_input;

/* Memory for one tensor. */
typedef struct posenc_output {
  void* data;
  size_t size; /* bytes */
} posenc_output;

typedef struct posenc_call {
  size_t struct_size;
  /* Name of an RPC of PositionalEncodingService: "ApplyRotary", "GenerateTable", ..., or for posenc_open of a stream.
   */
  const char* rpc;
  /* Serialized request. */
  const void* request;
  size_t request_size; /* bytes */
  const posenc_input* inputs;
  size_t input_count;
  /* Destinations of the answer's tensors, in the order of their fields (ApplyRotary: q, k; GenerateTable: cos, sin).
   * Each has exactly the tensor's bytes. With data NULL, or left out, the library allocates that tensor's memory. An
   * output may be an input's memory (in place) or overlap it. If the call fails, the contents of the outputs are
   * undefined. */
  const posenc_output* outputs;
  size_t output_count;
  /* Time limit in nanoseconds; 0: none. */
  int64_t timeout_ns;
  /* NULL, or a number that another thread may set, atomically, to a value other than 0: the call then ends soon, with 1
   * CANCELLED unless it was about to end. Read by posenc_run only. */
  const int32_t* cancelled;
} posenc_call;

/* Details of an error (proto/posenc/v1/error.proto). No string is NULL; one that does not apply is empty. */
typedef struct posenc_error_details {
  size_t struct_size;
  const char* message; /* for people: names field, value and limit */
  const char* reason;  /* for programs: "OUT_OF_RANGE", "MISSING", ... */
  const char* field;
  const char* value;
  const char* limit;
  const char* other_field; /* the second field where two contradict each other */
  const char* line;        /* place in a config.json at which its parser stopped, from 1 */
  const char* column;
} posenc_error_details;

typedef struct posenc_answer {
  size_t struct_size;
  /* 0 for success, else gRPC's number of the error: 1 CANCELLED, 3 INVALID_ARGUMENT, 4 DEADLINE_EXCEEDED, 8
   * RESOURCE_EXHAUSTED, 12 UNIMPLEMENTED, 13 INTERNAL. */
  int32_t code;
  /* NULL for success. */
  const posenc_error_details* error;
  /* Serialized response. Its own tensors, those that `tensors` lists, have dtype and shape and no data. */
  const void* message;
  size_t message_size; /* bytes */
  /* The data of the response's own tensors, in the order of their fields: the caller's memory from posenc_call.outputs,
   * or memory of this answer, aligned to 16 bytes if it is 32 bytes or more, which the caller may change. A tensor that
   * is absent from the response has data NULL and size 0. */
  const posenc_output* tensors;
  size_t tensor_count;
} posenc_answer;

/* Runs a call and returns when it has ended. The caller frees the answer by posenc_free. Nothing of `call` is retained,
 * but outputs in the caller's memory are listed in the answer. Returns NULL only if memory is lacking even for an
 * error. Thread-safe. */
const posenc_answer* posenc_run(posenc_context* context, const posenc_call* call);

/* Frees an answer, whatever its context is doing. NULL is ignored. Thread-safe for different answers. */
void posenc_free(const posenc_answer* answer);

/* A stream: StreamTable, StreamBias or StreamApplyRotary, one answer at a time. Not thread-safe, but streams may run at
 * the same time. */
typedef struct posenc_stream posenc_stream;

/* Begins a stream by its RPC's first request, which for StreamApplyRotary has the header. call->outputs must be empty;
 * call->timeout_ns limits the whole stream. Returns an answer without a message, which the caller frees, as with
 * posenc_run. *stream is NULL if it failed; otherwise the caller ends it by posenc_close, before the context. */
const posenc_answer* posenc_open(posenc_context* context, const posenc_call* call, posenc_stream** stream);

/* Returns the stream's next answer, which the caller frees and which outlives the stream.
 *
 * StreamTable, StreamBias: the next tile. After the last one the answer's message is NULL. Of `part`, which may be
 * NULL, only the outputs are read: destinations of the tile's tensors, in the order of their fields.
 *
 * StreamApplyRotary: with `part` NULL, the answer to the header. Otherwise part->request is a StreamApplyRotaryRequest
 * with a chunk, and the answer is that of the chunk. Its rows lie in it or beside it, as the one input "chunk.rows",
 * and the rotated rows are written to the one output, if there is one; otherwise they are in the answer's message. An
 * output that overlaps rows of a later chunk overwrites them.
 *
 * part->rpc and part->timeout_ns are not read. */
const posenc_answer* posenc_next(posenc_stream* stream, const posenc_call* part);

/* Ends a stream. NULL is ignored. */
void posenc_close(posenc_stream* stream);

/* Reads the file of a model: a config.json, a GGUF, of which only the header without the tokenizer and the frequency
 * factors are read, or a folder with one of them (posenc/wire/model_file.h). The answer's message is a ModelConfig.
 * An error's message begins with the path; codes 5 NOT_FOUND and 7 PERMISSION_DENIED can occur, too. Thread-safe. */
const posenc_answer* posenc_read_model(const char* path);

#ifdef __cplusplus
}
#endif

#endif /* POSENC_C_API_POSENC_H_ */
