/* Calls libposenc.so from C11, as a program without C++ and Protocol Buffers does. Prints each failed check. */
#define _POSIX_C_SOURCE 200809L
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "posenc/c_api/posenc.h"

static int failures = 0;

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                     \
    }                                                                 \
  } while (0)

/* ApplyRotaryRequest of one head row of two FP32 elements at position 1, whose data lie beside the message:
 * rotary { settings { rope_parameters { rope_type: "default" } rotary_dim: 2 input_pairing: PAIRING_HALF_SPLIT } }
 * positions { offset: 1 } layout: LAYOUT_BSHD q { tensor { dtype: DATA_TYPE_FP32 shape: [1, 1, 1, 2] } } */
static const unsigned char kRotation[] = {0x0a, 0x11, 0x12, 0x0f, 0x0a, 0x09, 0x0a, 0x07, 'd',  'e',
                                          'f',  'a',  'u',  'l',  't',  0x18, 0x02, 0x30, 0x02, /**/
                                          0x12, 0x02, 0x08, 0x01, 0x18, 0x01, 0x3a, 0x0a, 0x7a, 0x08,
                                          0x08, 0x01, 0x12, 0x04, 0x01, 0x01, 0x01, 0x02};
static const float kQuery[2] = {1, 0};
/* cos 1 and sin 1, correctly rounded to FP32 (MPFR). */
static const float kRotated[2] = {0.540302277f, 0.841470957f};

static posenc_call Rotation(const posenc_input* input, const posenc_output* output) {
  posenc_call call = {0};
  call.struct_size = sizeof call;
  call.rpc = "ApplyRotary";
  call.request = kRotation;
  call.request_size = sizeof kRotation;
  call.inputs = input;
  call.input_count = 1;
  call.outputs = output;
  call.output_count = output == NULL ? 0 : 1;
  return call;
}

static void RotatesIntoTheCallersMemory(posenc_context* context) {
  const posenc_input input = {"q.tensor", kQuery, sizeof kQuery};
  float rotated[2] = {0};
  const posenc_output output = {rotated, sizeof rotated};
  const posenc_call call = Rotation(&input, &output);
  const posenc_answer* answer = posenc_run(context, &call);
  CHECK(answer->code == 0 && answer->error == NULL);
  CHECK(memcmp(rotated, kRotated, sizeof rotated) == 0);
  CHECK(answer->tensor_count == 2 && answer->tensors[0].data == rotated && answer->tensors[0].size == sizeof rotated);
  CHECK(answer->tensors[1].data == NULL && answer->tensors[1].size == 0);
  CHECK(answer->message_size > 0);
  posenc_free(answer);
}

static void RotatesInPlace(posenc_context* context) {
  float q[2] = {1, 0};
  const posenc_input input = {"q.tensor", q, sizeof q};
  const posenc_output output = {q, sizeof q};
  const posenc_call call = Rotation(&input, &output);
  const posenc_answer* answer = posenc_run(context, &call);
  CHECK(answer->code == 0 && memcmp(q, kRotated, sizeof q) == 0);
  posenc_free(answer);
}

static void AllocatesWhatHasNoOutput(posenc_context* context) {
  const posenc_input input = {"q.tensor", kQuery, sizeof kQuery};
  const posenc_call call = Rotation(&input, NULL);
  const posenc_answer* answer = posenc_run(context, &call);
  CHECK(answer->code == 0 && answer->tensors[0].size == sizeof kRotated);
  CHECK(memcmp(answer->tensors[0].data, kRotated, sizeof kRotated) == 0);
  posenc_free(answer);
}

/* GenerateTableRequest of positions that lie beside the message:
 * rotary { settings { as above } } positions { ids { dtype: DATA_TYPE_INT64 shape: [2] } }
 * dtype: DATA_TYPE_FP32 form: TABLE_FORM_HALF_WIDTH */
static const unsigned char kTable[] = {0x0a, 0x11, 0x12, 0x0f, 0x0a, 0x09, 0x0a, 0x07, 'd',  'e',  'f',  'a',  'u',
                                       'l',  't',  0x18, 0x02, 0x30, 0x02, /**/
                                       0x12, 0x07, 0x1a, 0x05, 0x08, 0x06, 0x12, 0x01, 0x02, 0x20, 0x01, 0x28, 0x01};

static void TakesPositionsBesideTheMessage(posenc_context* context) {
  const int64_t ids[2] = {0, 1};
  const posenc_input input = {"positions.ids", ids, sizeof ids};
  posenc_call call = Rotation(&input, NULL);
  call.rpc = "GenerateTable";
  call.request = kTable;
  call.request_size = sizeof kTable;
  const posenc_answer* answer = posenc_run(context, &call);
  CHECK(answer->code == 0 && answer->tensor_count == 2 && answer->tensors[0].size == 8 && answer->tensors[1].size == 8);
  if (answer->code == 0) {
    const float* cosines = answer->tensors[0].data;
    const float* sines = answer->tensors[1].data;
    CHECK(cosines[0] == 1 && cosines[1] == kRotated[0] && sines[0] == 0 && sines[1] == kRotated[1]);
  }
  posenc_free(answer);
  const posenc_input twice[2] = {input, input};
  call.inputs = twice;
  call.input_count = 2;
  answer = posenc_run(context, &call);
  CHECK(answer->code == 3 && strcmp(answer->error->reason, "NOT_READ") == 0);
  posenc_free(answer);
}

/* Checks code, reason and field of a call's error. */
static void Fails(posenc_context* context, const posenc_call* call, int code, const char* reason, const char* field) {
  const posenc_answer* answer = posenc_run(context, call);
  CHECK(answer->code == code && answer->error != NULL && answer->tensor_count == 0);
  if (answer->error != NULL) {
    if (strcmp(answer->error->reason, reason) != 0 || strcmp(answer->error->field, field) != 0) {
      fprintf(stderr, "got %s of %s: %s\n", answer->error->reason, answer->error->field, answer->error->message);
      ++failures;
    }
    CHECK(strlen(answer->error->limit) > 0);
  }
  posenc_free(answer);
}

static void NamesWhatIsWrong(posenc_context* context) {
  const posenc_input input = {"q.tensor", kQuery, sizeof kQuery};
  posenc_call call = Rotation(&input, NULL);
  call.rpc = "NoSuchCall";
  Fails(context, &call, 12, "UNSUPPORTED", "rpc");
  call.rpc = "StreamTable";
  Fails(context, &call, 12, "UNSUPPORTED", "rpc");
  call = Rotation(&input, NULL);
  call.request_size = 5;
  Fails(context, &call, 3, "MALFORMED", "request");
  call.request = NULL;
  Fails(context, &call, 3, "MISSING", "request");
  call = Rotation(NULL, NULL);
  Fails(context, &call, 3, "MISSING", "inputs");
  call = Rotation(&input, NULL);
  call.output_count = 1;
  Fails(context, &call, 3, "MISSING", "outputs");
  const posenc_input nowhere = {"q.tensor", NULL, sizeof kQuery};
  call = Rotation(&nowhere, NULL);
  Fails(context, &call, 3, "MISSING", "inputs[0].data");
  call = Rotation(&input, NULL);
  call.timeout_ns = -1;
  Fails(context, &call, 3, "OUT_OF_RANGE", "timeout_ns");
  const posenc_input elsewhere = {"k.tensor", kQuery, sizeof kQuery};
  call = Rotation(&elsewhere, NULL);
  Fails(context, &call, 3, "NOT_READ", "inputs[0].tensor");
  const posenc_input shorter = {"q.tensor", kQuery, 4};
  call = Rotation(&shorter, NULL);
  Fails(context, &call, 3, "MISMATCH", "q.tensor.data");
  float rotated[3];
  const posenc_output longer = {rotated, sizeof rotated};
  call = Rotation(&input, &longer);
  Fails(context, &call, 3, "MISMATCH", "outputs[0]");
}

/* ExplainRequest { model { gguf: bytes that are neither GGUF nor UTF-8 } } */
static const unsigned char kNoModel[] = {0x0a, 0x06, 0x42, 0x04, 0xff, 0xfe, 'U', 'F'};

static void AnswersInUtf8(posenc_context* context) {
  posenc_call call = {0};
  call.struct_size = sizeof call;
  call.rpc = "Explain";
  call.request = kNoModel;
  call.request_size = sizeof kNoModel;
  const posenc_answer* answer = posenc_run(context, &call);
  CHECK(answer->code == 3 && strcmp(answer->error->value, "\\xff\\xfeUF") == 0);
  CHECK(answer->code == 3 && strcmp(answer->error->message, "model.gguf.magic: is \\xff\\xfeUF; must be GGUF") == 0);
  posenc_free(answer);
  answer = posenc_read_model("\xff");
  CHECK(answer->code == 5 && strcmp(answer->error->message, "\\xff: no such file or folder") == 0);
  posenc_free(answer);
}

static void OptionsAreCheckedAndMayBeShorter(void) {
  posenc_options options = {0};
  options.struct_size = sizeof options;
  options.max_output_bytes = -1;
  CHECK(posenc_create(&options) == NULL);
  /* An older caller's struct ends after `threads`; the bytes behind it are not read. */
  options.struct_size = offsetof(posenc_options, max_request_bytes);
  options.threads = 1;
  posenc_context* context = posenc_create(&options);
  CHECK(context != NULL);
  posenc_destroy(context);
  options.struct_size = sizeof options;
  options.max_output_bytes = 4;
  context = posenc_create(&options);
  CHECK(context != NULL);
  const posenc_input input = {"q.tensor", kQuery, sizeof kQuery};
  const posenc_call call = Rotation(&input, NULL);
  const posenc_answer* answer = posenc_run(context, &call);
  CHECK(answer->code == 8 && strcmp(answer->error->reason, "TOO_LARGE") == 0);
  posenc_destroy(context);
  CHECK(answer->error->message[0] != '\0'); /* an answer outlives its context */
  posenc_free(answer);
  options.max_output_bytes = 0;
  options.max_request_bytes = sizeof kQuery; /* too few for the query with its message */
  context = posenc_create(&options);
  answer = posenc_run(context, &call);
  CHECK(answer->code == 8 && strcmp(answer->error->field, "request") == 0);
  posenc_free(answer);
  posenc_destroy(context);
}

/* Begins a stream, and expects that it succeeds. */
static posenc_stream* Open(posenc_context* context, const posenc_call* call) {
  posenc_stream* stream = NULL;
  const posenc_answer* answer = posenc_open(context, call, &stream);
  CHECK(answer->code == 0 && answer->message == NULL && stream != NULL);
  posenc_free(answer);
  return stream;
}

/* Begins a stream of q's chunks. */
static posenc_stream* OpenRotation(posenc_context* context, const void* header, size_t size) {
  posenc_call call = {0};
  call.struct_size = sizeof call;
  call.rpc = "StreamApplyRotary";
  call.request = header;
  call.request_size = size;
  return Open(context, &call);
}

/* Checks reason and field of the error of a stream's next answer. */
static void NextFails(posenc_stream* stream, const posenc_call* part, const char* reason, const char* field) {
  const posenc_answer* answer = posenc_next(stream, part);
  CHECK(answer->code == 3);
  if (answer->code == 3) {
    CHECK(strcmp(answer->error->reason, reason) == 0);
    CHECK(strcmp(answer->error->field, field) == 0);
  }
  posenc_free(answer);
}

/* A StreamTableRequest of kTable and rows_per_tile: 1. */
static void StreamsTiles(posenc_context* context) {
  unsigned char request[2 + sizeof kTable + 2] = {0x0a, sizeof kTable};
  memcpy(request + 2, kTable, sizeof kTable);
  request[sizeof request - 2] = 0x10;
  request[sizeof request - 1] = 0x01;
  const int64_t ids[2] = {0, 1};
  const posenc_input input = {"table.positions.ids", ids, sizeof ids};
  posenc_call call = Rotation(&input, NULL);
  call.rpc = "StreamTable";
  call.request = request;
  call.request_size = sizeof request;
  posenc_stream* stream = Open(context, &call);
  if (stream == NULL) return;
  const posenc_answer* first = posenc_next(stream, NULL);
  CHECK(first->code == 0 && first->message != NULL && first->tensor_count == 2);
  CHECK(first->tensors[0].size == 4 && *(const float*)first->tensors[0].data == 1);
  float cosine = 0;
  const posenc_output output = {&cosine, sizeof cosine};
  posenc_call part = call; /* of which only the outputs are read */
  const posenc_output twice[2] = {output, output};
  part.outputs = twice;
  part.output_count = 2;
  NextFails(stream, &part, "CONFLICT", "outputs[1]");
  part.output_count = 1;
  const posenc_answer* second = posenc_next(stream, &part);
  CHECK(second->code == 0 && cosine == kRotated[0] && second->tensors[0].data == &cosine);
  CHECK(*(const float*)second->tensors[1].data == kRotated[1]);
  const posenc_answer* end = posenc_next(stream, NULL);
  CHECK(end->code == 0 && end->message == NULL && end->tensor_count == 0);
  posenc_close(stream);
  CHECK(*(const float*)first->tensors[1].data == 0); /* an answer outlives its stream */
  posenc_free(end);
  posenc_free(second);
  posenc_free(first);
}

/* StreamApplyRotaryRequest { chunk { operand: OPERAND_QUERY rows { byte_offset: 0 } } } */
static const unsigned char kChunk[] = {0x12, 0x04, 0x08, 0x01, 0x7a, 0x00};

static void StreamsChunks(posenc_context* context) {
  unsigned char header[2 + sizeof kRotation] = {0x0a, sizeof kRotation};
  memcpy(header + 2, kRotation, sizeof kRotation);
  posenc_stream* stream = OpenRotation(context, header, sizeof header);
  if (stream == NULL) return;
  const posenc_answer* info = posenc_next(stream, NULL);
  CHECK(info->code == 0 && info->message_size > 0);
  posenc_free(info);
  const posenc_input rows = {"chunk.rows", kQuery, sizeof kQuery};
  float rotated[2] = {0};
  const posenc_output output = {rotated, sizeof rotated};
  posenc_call part = Rotation(&rows, &output);
  part.request = kChunk;
  part.request_size = sizeof kChunk;
  const posenc_answer* answer = posenc_next(stream, &part);
  CHECK(answer->code == 0 && memcmp(rotated, kRotated, sizeof rotated) == 0);
  CHECK(answer->message_size == sizeof kChunk && memcmp(answer->message, kChunk, sizeof kChunk) == 0);
  posenc_free(answer);
  part.output_count = 0; /* then the rows are in the message, behind 8 bytes of it */
  answer = posenc_next(stream, &part);
  CHECK(answer->code == 0 && answer->message_size == sizeof kChunk + 2 + sizeof kRotated);
  CHECK(answer->code == 0 && memcmp((const char*)answer->message + 8, kRotated, sizeof kRotated) == 0);
  posenc_free(answer);
  const posenc_output outputs[2] = {{rotated, 4}, {NULL, 0}};
  part.outputs = outputs;
  part.output_count = 1;
  NextFails(stream, &part, "MISMATCH", "outputs[0]");
  part.output_count = 2;
  NextFails(stream, &part, "NOT_READ", "outputs[1]");
  part.output_count = 0;
  const posenc_input twice[2] = {rows, rows};
  part.inputs = twice;
  part.input_count = 2;
  NextFails(stream, &part, "NOT_READ", "inputs");
  /* kChunk with data: "x" */
  static const unsigned char kChunkWithData[] = {0x12, 0x07, 0x08, 0x01, 0x7a, 0x03, 0x7a, 0x01, 'x'};
  part.request = kChunkWithData;
  part.request_size = sizeof kChunkWithData;
  part.input_count = 1;
  NextFails(stream, &part, "CONFLICT", "inputs[0]");
  part.input_count = 0;
  part.request_size = 0;
  NextFails(stream, &part, "MISSING", "chunk.operand");
  part.request = header;
  part.request_size = sizeof header;
  NextFails(stream, &part, "CONFLICT", "header");
  posenc_close(stream);
}

/* Rotates 64 head rows of 8 elements as one chunk, to so many elements behind them in memory. */
static void RotatesAChunkOntoItself(posenc_context* context) {
  enum { kElements = 64 * 8 };
  unsigned char header[2 + sizeof kRotation] = {0x0a, sizeof kRotation};
  memcpy(header + 2, kRotation, sizeof kRotation);
  header[2 + 16] = 8;  /* rotary_dim */
  header[2 + 34] = 64; /* shape: [1, 64, 1, 8] */
  header[2 + 36] = 8;
  posenc_stream* stream = OpenRotation(context, header, sizeof header);
  if (stream == NULL) return;
  static const int kDistances[] = {kElements, 0, 1, 8, 256, -1, -8, -256}; /* the first one: apart */
  float expected[kElements];
  for (size_t n = 0; n < sizeof kDistances / sizeof *kDistances; ++n) {
    float memory[3 * kElements];
    float* const q = memory + kElements;
    float* const rotated = q + kDistances[n];
    for (int i = 0; i < kElements; ++i) q[i] = (float)i;
    const posenc_input input = {"chunk.rows", q, kElements * sizeof *q};
    const posenc_output output = {rotated, kElements * sizeof *q};
    posenc_call part = Rotation(&input, &output);
    part.request = kChunk;
    part.request_size = sizeof kChunk;
    const posenc_answer* answer = posenc_next(stream, &part);
    CHECK(answer->code == 0);
    posenc_free(answer);
    if (n == 0) memcpy(expected, rotated, sizeof expected);
    CHECK(memcmp(expected, rotated, sizeof expected) == 0);
  }
  posenc_close(stream);
}

static void RefusesOtherStreams(posenc_context* context) {
  const posenc_input input = {"q.tensor", kQuery, sizeof kQuery};
  const posenc_call call = Rotation(&input, NULL);
  posenc_stream* stream = NULL;
  const posenc_answer* answer = posenc_open(context, &call, &stream);
  CHECK(answer->code == 12 && stream == NULL && strcmp(answer->error->field, "rpc") == 0);
  posenc_free(answer);
  posenc_close(NULL);
}

static void ReadsModels(void) {
  static const char kPath[] = "c_api_test.config.json", kText[] = "{\"model_type\": \"llama\"}";
  FILE* file = fopen(kPath, "w");
  CHECK(file != NULL && fputs(kText, file) >= 0 && fclose(file) == 0);
  const posenc_answer* answer = posenc_read_model(kPath);
  /* ModelConfig { config_json: the text } */
  CHECK(answer->code == 0 && answer->message_size == 2 + strlen(kText));
  CHECK(answer->code == 0 && memcmp((const char*)answer->message + 2, kText, strlen(kText)) == 0);
  posenc_free(answer);
  remove(kPath);
  answer = posenc_read_model(kPath);
  CHECK(answer->code == 5 && strstr(answer->error->message, kPath) != NULL);
  posenc_free(answer);
}

/* Rotates as `call` says. Returns the answer's code. */
static int CodeOf(posenc_context* context, const posenc_call* call) {
  const posenc_answer* answer = posenc_run(context, call);
  const int code = answer->code;
  posenc_free(answer);
  return code;
}

static void EndsCancelledCalls(posenc_context* context) {
  const posenc_input input = {"q.tensor", kQuery, sizeof kQuery};
  posenc_call call = Rotation(&input, NULL);
  int32_t cancelled = 0;
  call.cancelled = &cancelled;
  CHECK(CodeOf(context, &call) == 0);
  cancelled = 1;
  CHECK(CodeOf(context, &call) == 1);
  /* A caller that was compiled before the field existed. */
  call.struct_size = offsetof(posenc_call, cancelled);
  CHECK(CodeOf(context, &call) == 0);
}

static void WorksInAForkedChild(void) {
  posenc_context* context = posenc_create(NULL);
  const posenc_input input = {"q.tensor", kQuery, sizeof kQuery};
  const posenc_call call = Rotation(&input, NULL);
  CHECK(CodeOf(context, &call) == 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    const int code = CodeOf(context, &call);
    posenc_destroy(context);
    _exit(code);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(CodeOf(context, &call) == 0);
  posenc_destroy(context);
}

int main(void) {
  CHECK(posenc_abi_version() == POSENC_ABI_VERSION);
  CHECK(strlen(posenc_version()) > 0);
  posenc_context* context = posenc_create(NULL);
  CHECK(context != NULL);
  if (context == NULL) return 1;
  RotatesIntoTheCallersMemory(context);
  RotatesInPlace(context);
  AllocatesWhatHasNoOutput(context);
  TakesPositionsBesideTheMessage(context);
  NamesWhatIsWrong(context);
  AnswersInUtf8(context);
  OptionsAreCheckedAndMayBeShorter();
  StreamsTiles(context);
  StreamsChunks(context);
  RotatesAChunkOntoItself(context);
  RefusesOtherStreams(context);
  ReadsModels();
  EndsCancelledCalls(context);
  WorksInAForkedChild();
  posenc_destroy(context);
  posenc_destroy(NULL);
  posenc_free(NULL);
  printf("%d failed checks\n", failures);
  return failures != 0;
}
