#include "tools/posenc/defaults.h"

#include <algorithm>
#include <initializer_list>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "posenc/base/gguf.h"
#include "posenc/base/json_text.h"
#include "posenc/gguf/gguf_fields.h"
#include "tools/posenc/field_flags.h"

namespace posenc::command {
namespace {

constexpr int64_t kT5Buckets = 32;  // default of num_buckets
constexpr int64_t kClsRows = 3;     // of BEiT's table

constexpr char kShapes[] = "the shapes fit no other";

// Returns the first of these fields that the model's config.json, or its text part, has; null if it has none.
nlohmann::json FieldOf(const v1::ModelConfig& model, std::initializer_list<const char*> names) {
  nlohmann::json json;
  if (!ParseJson(model.config_json(), "config_json", &json).ok() || !json.is_object()) return nullptr;
  for (const auto* object : {&json, json.contains("text_config") ? &json["text_config"] : &json}) {
    for (const char* name : names) {
      if (object->is_object() && object->contains(name)) return (*object)[name];
    }
  }
  return nullptr;
}

// Returns the number at ARCHITECTURE.key, or that of which its list consists; 0 if there is none.
int64_t GgufNumber(const std::string& file, const char* key) {
  const absl::StatusOr<Gguf> gguf = ReadGguf(file);
  const absl::StatusOr<std::string> architecture = gguf.ok() ? ArchitectureOf(*gguf) : gguf.status();
  if (!architecture.ok()) return 0;  // the service says what is wrong
  const GgufFields fields(*gguf, *architecture);
  if (const auto number = fields.Number(key); number.ok() && *number) return **number;
  const auto list = fields.List(key);
  if (!list.ok() || !*list || (*list)->empty()) return 0;
  const int64_t first = (*list)->front();
  return std::all_of((*list)->begin(), (*list)->end(), [first](int64_t each) { return each == first; }) ? first : 0;
}

// Returns a number of the model's config.json, or the one at `key` of its GGUF; 0 if there is none, or a list of
// numbers that differ by layer.
int64_t NumberOf(const v1::ModelConfig& model, std::initializer_list<const char*> names, const char* key = nullptr) {
  if (!model.gguf().empty() && key != nullptr) return GgufNumber(model.gguf(), key);
  const nlohmann::json value = FieldOf(model, names);
  return value.is_number_integer() ? value.get<int64_t>() : 0;
}

// Returns the layout for which alone fits(axis of tokens, axis of heads) is true.
template <typename Fits>
v1::Layout OnlyLayout(const Fits& fits) {
  const bool bshd = fits(1, 2), bhsd = fits(2, 1);
  if (bshd == bhsd) return v1::LAYOUT_UNSPECIFIED;
  return bshd ? v1::LAYOUT_BSHD : v1::LAYOUT_BHSD;
}

// True if the size is as expected; 0: nothing is expected.
bool Is(int64_t size, int64_t expected) { return expected == 0 || size == expected; }

// Returns the number of tokens of a sequence that the positions give; 0 if they fit any number.
int64_t TokensOf(const v1::Positions& positions) {
  const int rank = positions.ids().shape_size(), axes_last = positions.axis_dimension() == v1::AXIS_DIMENSION_LAST;
  return rank > axes_last ? positions.ids().shape(rank - 1 - axes_last) : 0;
}

// Returns the layout of q and, if it is not null, k; sets `why`. Unset if they leave several. `or_k`: without k, q may
// be k.
v1::Layout LayoutOf(const v1::Tensor& q, const v1::Tensor* k, bool or_k, const v1::Positions& positions,
                    const v1::ModelConfig& model, std::string* why) {
  if (q.shape_size() == 3) {
    *why = "q has three axes";
    return v1::LAYOUT_THD;
  }
  if (q.shape_size() != 4 || (k != nullptr && k->shape_size() != 4)) return v1::LAYOUT_UNSPECIFIED;
  const int64_t tokens = TokensOf(positions);
  const auto shapes_fit = [&](int s, int) {
    return Is(q.shape(s), tokens) && (k == nullptr || k->shape(s) == q.shape(s));
  };
  *why = kShapes;
  if (const v1::Layout only = OnlyLayout(shapes_fit); only != v1::LAYOUT_UNSPECIFIED || !shapes_fit(1, 2)) return only;
  const int64_t heads = NumberOf(model, {"num_attention_heads", "n_head"}, "attention.head_count");
  const int64_t key_heads = NumberOf(model, {"num_key_value_heads"}, "attention.head_count_kv");
  if (heads == 0) return v1::LAYOUT_UNSPECIFIED;
  *why = absl::StrCat("the model has ", heads, " heads");
  return OnlyLayout([&](int, int h) {
    if (k == nullptr && or_k && q.shape(h) == key_heads) return true;
    return q.shape(h) == heads && (k == nullptr || Is(k->shape(h), key_heads));
  });
}

void Assume(v1::Layout layout, const std::string& why, Session* session) {
  if (layout != v1::LAYOUT_UNSPECIFIED) session->Assume("--layout", EnumName(layout), why);
}

// Returns the orientation of a table whose buckets are known; unset if both or none fit.
v1::BiasTableLayout LayoutOf(const v1::Tensor& table, int64_t buckets) {
  if (table.shape_size() != 2 || (table.shape(0) == buckets) == (table.shape(1) == buckets)) {
    return v1::BIAS_TABLE_LAYOUT_UNSPECIFIED;
  }
  return table.shape(0) == buckets ? v1::BIAS_TABLE_LAYOUT_BUCKETS_BY_HEADS : v1::BIAS_TABLE_LAYOUT_HEADS_BY_BUCKETS;
}

int64_t BucketsOf(const v1::T5Bias& t5) { return t5.has_num_buckets() ? t5.num_buckets() : kT5Buckets; }

template <typename Window>
int64_t DisplacementsOf(const Window& window) {
  return (2 * window.window_height() - 1) * (2 * window.window_width() - 1);
}

// Returns the rows of the method's table; 0 if they are not known.
int64_t BucketsOf(const v1::BiasMethod& method) {
  switch (method.method_case()) {
    case v1::BiasMethod::kT5: return BucketsOf(method.t5());
    case v1::BiasMethod::kSwin: return DisplacementsOf(method.swin());
    case v1::BiasMethod::kBeit: return DisplacementsOf(method.beit()) + kClsRows;
    case v1::BiasMethod::kModel: return NumberOf(method.model(), {"relative_attention_num_buckets", "num_buckets"});
    default: return 0;
  }
}

constexpr char kTableShape[] = "the table's shape";

}  // namespace

void CompleteLayout(v1::ApplyRotaryRequest* request, Session* session) {
  if (request->layout() != v1::LAYOUT_UNSPECIFIED) return;
  std::string why;
  request->set_layout(LayoutOf(request->q().tensor(), request->has_k() ? &request->k().tensor() : nullptr, false,
                               request->positions(), request->rotary().model(), &why));
  Assume(request->layout(), why, session);
}

void CompleteLayout(v1::DiagnoseRequest* request, Session* session) {
  if (request->layout() != v1::LAYOUT_UNSPECIFIED || !request->has_rotation()) return;
  const v1::RotationEvidence& rotation = request->rotation();
  std::string why;
  request->set_layout(LayoutOf(rotation.q().before(), rotation.has_k() ? &rotation.k().before() : nullptr, true,
                               request->positions(), request->expected().model(), &why));
  Assume(request->layout(), why, session);
}

void CompleteLayout(v1::RelativeScoresRequest* request, Session* session) {
  const v1::Tensor &q = request->q(), &k = request->k(), &sum = request->add_to();
  if (request->layout() != v1::LAYOUT_UNSPECIFIED || q.shape_size() != 4) return;
  const bool has_k = request->has_k() && k.shape_size() == 4, has_sum = request->has_add_to() && sum.shape_size() == 4;
  const v1::BiasGeometry& geometry = request->geometry();
  request->set_layout(OnlyLayout([&](int s, int h) {
    return (!has_k || (k.shape(h) > 0 && q.shape(h) % k.shape(h) == 0 && Is(k.shape(s), geometry.key_length()))) &&
           (!has_sum || (sum.shape(1) == q.shape(h) && sum.shape(2) == q.shape(s))) &&
           Is(q.shape(s), geometry.query_length());
  }));
  Assume(request->layout(), kShapes, session);
}

void CompleteLayout(v1::RelativeValuesRequest* request, Session* session) {
  const v1::Tensor &probabilities = request->probabilities(), &sum = request->add_to();
  if (request->layout() != v1::LAYOUT_UNSPECIFIED || probabilities.shape_size() != 4 || sum.shape_size() != 4) return;
  request->set_layout(OnlyLayout(
      [&](int s, int h) { return sum.shape(h) == probabilities.shape(1) && sum.shape(s) == probabilities.shape(2); }));
  Assume(request->layout(), kShapes, session);
}

int64_t MaxPositionsOf(const v1::ModelConfig& model) {
  return NumberOf(model, {"max_position_embeddings"}, "context_length");
}

v1::DataType UsualDtype(const v1::ModelConfig* model, const std::string& out, Session* session) {
  const nlohmann::json name = model == nullptr ? nlohmann::json() : FieldOf(*model, {"dtype", "torch_dtype"});
  const bool bf16 = name == "bfloat16" && !out.ends_with(".npy");
  const v1::DataType dtype = bf16 ? v1::DATA_TYPE_BF16 : name == "float16" ? v1::DATA_TYPE_FP16 : v1::DATA_TYPE_FP32;
  session->Assume("--dtype", EnumName(dtype), dtype != v1::DATA_TYPE_FP32 ? "the model's" : "");
  return dtype;
}

void CompleteTableLayout(v1::BiasMethod* method, Session* session) {
  if (!method->has_table() || method->table_layout() != v1::BIAS_TABLE_LAYOUT_UNSPECIFIED) return;
  method->set_table_layout(LayoutOf(method->table(), BucketsOf(*method)));
  if (method->table_layout() == v1::BIAS_TABLE_LAYOUT_UNSPECIFIED) return;
  session->Assume("--table-layout", EnumName(method->table_layout()), kTableShape);
}

void CompleteTableLayout(v1::Tupe* tupe, Session* session) {
  if (!tupe->has_relative_bias_table()) return;
  if (tupe->relative_bias_table_layout() != v1::BIAS_TABLE_LAYOUT_UNSPECIFIED) return;
  tupe->set_relative_bias_table_layout(LayoutOf(tupe->relative_bias_table(), BucketsOf(tupe->relative_bias())));
  if (tupe->relative_bias_table_layout() == v1::BIAS_TABLE_LAYOUT_UNSPECIFIED) return;
  session->Assume("--tupe-relative-bias-table-layout", EnumName(tupe->relative_bias_table_layout()), kTableShape);
}

}  // namespace posenc::command
