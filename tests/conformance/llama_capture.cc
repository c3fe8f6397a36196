// llama-capture MODEL.gguf OUT TOKENS FIRST [N_CTX]: runs libllama on a model with the metadata and the frequency
// factors of a GGUF and with random weights, for TOKENS tokens from position FIRST on. Writes to OUT every rotation of
// a graph (operand before and after) and every softmax with ALiBi:
//
//   a line of text for each array: name, layer, number of its float32, four sizes, innermost first; an empty line; the
//   data
//
// Multi-axis models get positions (FIRST + n, 2 n, 3 n, 0) with embeddings in place of tokens if FIRST is negative.
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "ggml-backend.h"
#include "ggml.h"
#include "gguf.h"
#include "llama.h"

namespace {

struct Array {
  std::string name;
  std::vector<int64_t> sizes;
  std::vector<float> values;
};

struct Capture {
  std::string layer = "0";                       // of the last node that is named after one
  std::map<const ggml_tensor*, Array> computed;  // by the node that has just been computed
  std::vector<Array> arrays;
};

struct Weights {
  ggml_context* factors;  // tensors of the GGUF
};

// Returns a float32 tensor's elements in order, whatever its strides.
Array Read(const ggml_tensor* tensor) {
  Array array{tensor->name, {tensor->ne, tensor->ne + 4}, {}};
  std::vector<char> bytes(ggml_nbytes(tensor));
  ggml_backend_tensor_get(tensor, bytes.data(), 0, bytes.size());
  for (int64_t i3 = 0; i3 < tensor->ne[3]; ++i3) {
    for (int64_t i2 = 0; i2 < tensor->ne[2]; ++i2) {
      for (int64_t i1 = 0; i1 < tensor->ne[1]; ++i1) {
        for (int64_t i0 = 0; i0 < tensor->ne[0]; ++i0) {
          const char* at =
              bytes.data() + i3 * tensor->nb[3] + i2 * tensor->nb[2] + i1 * tensor->nb[1] + i0 * tensor->nb[0];
          float value;
          std::memcpy(&value, at, sizeof(value));
          array.values.push_back(value);
        }
      }
    }
  }
  return array;
}

// Runs the graph node by node, because a rotation may overwrite its operand.
bool OnNode(ggml_tensor* node, bool ask, void* user) {
  if (ask) return true;
  auto& capture = *static_cast<Capture*>(user);
  const std::string node_name = node->name;  // e.g. "Qcur-3", "Qcur-3 (view)", "node_12"
  const size_t dash = node_name.rfind('-');
  if (dash != std::string::npos && dash + 1 < node_name.size() && std::isdigit(node_name[dash + 1]) != 0) {
    capture.layer = std::to_string(std::atoi(node_name.c_str() + dash + 1));
  }
  if (node->op == GGML_OP_ROPE && capture.computed.contains(node->src[0])) {
    Array before = capture.computed[node->src[0]];
    const std::string name = node_name + "\t" + capture.layer;
    before.name = "before " + name;
    capture.arrays.push_back(std::move(before));
    Array after = Read(node);
    after.name = "after " + name;
    capture.arrays.push_back(std::move(after));
  }
  float max_bias = 0, scale = 0;
  if (node->op == GGML_OP_SOFT_MAX) {
    std::memcpy(&scale, node->op_params, sizeof(scale));
    std::memcpy(&max_bias, reinterpret_cast<const char*>(node->op_params) + sizeof(scale), sizeof(max_bias));
  }
  if (max_bias > 0 && capture.computed.contains(node->src[0])) {
    Array scores = capture.computed[node->src[0]];
    scores.name = "scores\t" + capture.layer;
    for (float& value : scores.values) value *= scale;
    capture.arrays.push_back(std::move(scores));
    Array after = Read(node);
    after.name = "softmax\t" + capture.layer;
    capture.arrays.push_back(std::move(after));
  }
  if (node->type == GGML_TYPE_F32) capture.computed[node] = Read(node);
  return true;
}

void SetWeights(ggml_tensor* tensor, void* user) {
  const auto& weights = *static_cast<Weights*>(user);
  std::vector<float> values(ggml_nelements(tensor), 1);
  const ggml_tensor* given = ggml_get_tensor(weights.factors, tensor->name);
  if (given != nullptr) {
    std::memcpy(values.data(), given->data, ggml_nbytes(given));
  } else if (std::strncmp(tensor->name, "rope_", 5) != 0) {  // factors that the file lacks are 1
    std::mt19937 random(std::hash<std::string>()(tensor->name));
    std::normal_distribution<float> normal(0, 0.1f);
    for (float& value : values) value = normal(random);
  }
  if (tensor->type == GGML_TYPE_F32) {
    ggml_backend_tensor_set(tensor, values.data(), 0, ggml_nbytes(tensor));
  } else if (tensor->type == GGML_TYPE_F16) {
    std::vector<ggml_fp16_t> halves(values.size());
    ggml_fp32_to_fp16_row(values.data(), halves.data(), static_cast<int64_t>(values.size()));
    ggml_backend_tensor_set(tensor, halves.data(), 0, ggml_nbytes(tensor));
  } else {
    std::abort();
  }
}

int Fail(const char* what) {
  std::fprintf(stderr, "llama-capture: %s\n", what);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return Fail("usage: llama-capture MODEL.gguf OUT TOKENS FIRST [N_CTX]");
  const int tokens = std::atoi(argv[3]), first = std::atoi(argv[4]);
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level >= GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
      },
      nullptr);
  Weights weights{};
  gguf_context* metadata = gguf_init_from_file(argv[1], {.no_alloc = false, .ctx = &weights.factors});
  if (metadata == nullptr) return Fail("gguf_init_from_file refuses the file");
  llama_model_params model_params = llama_model_default_params();
  ggml_backend_dev_t devices[] = {nullptr};
  model_params.devices = devices;
  llama_model* model = llama_model_init_from_user(metadata, SetWeights, &weights, model_params);
  if (model == nullptr) return Fail("libllama refuses the model");

  Capture capture;
  llama_context_params params = llama_context_default_params();
  params.n_ctx = argc > 5 ? static_cast<uint32_t>(std::atoi(argv[5])) : 64;
  params.n_batch = params.n_ubatch = 64;
  params.n_threads = params.n_threads_batch = 1;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.cb_eval = OnNode;
  params.cb_eval_user_data = &capture;
  params.no_perf = true;
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) return Fail("libllama refuses the context");
  capture = {};  // what the reservation of memory ran

  const bool axes = first < 0;
  const int width = llama_model_n_embd_inp(model);
  llama_batch batch = llama_batch_init(tokens, axes ? width : 0, 1);
  std::vector<llama_pos> positions(4 * static_cast<size_t>(tokens));
  llama_pos* const own_positions = batch.pos;
  if (axes) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (int n = 0; n < tokens * width; ++n) batch.embd[n] = normal(random);
    batch.pos = positions.data();
  }
  batch.n_tokens = tokens;
  for (int n = 0; n < tokens; ++n) {
    if (axes) {
      for (int axis = 0; axis < 3; ++axis) positions[axis * tokens + n] = axis == 0 ? n - first : (axis + 1) * n;
    } else {
      batch.token[n] = n % 32;
      batch.pos[n] = first + n;
    }
    batch.n_seq_id[n] = 1;
    batch.seq_id[n][0] = 0;
    batch.logits[n] = 1;
  }
  const int status = llama_model_has_decoder(model) ? llama_decode(context, batch) : llama_encode(context, batch);
  if (status != 0) return Fail("libllama does not run the tokens");

  std::ofstream out(argv[2], std::ios::binary);
  for (const Array& array : capture.arrays) {
    out << array.name << '\t' << array.values.size();
    for (const int64_t size : array.sizes) out << '\t' << size;
    out << '\n';
  }
  out << '\n';
  for (const Array& array : capture.arrays) {
    out.write(reinterpret_cast<const char*>(array.values.data()),
              static_cast<std::streamsize>(array.values.size() * sizeof(float)));
  }
  batch.pos = own_positions;
  llama_batch_free(batch);
  llama_free(context);
  llama_model_free(model);
  return out ? 0 : Fail("cannot write");
}
