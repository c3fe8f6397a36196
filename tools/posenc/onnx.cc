#include "tools/posenc/onnx.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_join.h"
#include "posenc/base/status.h"
#include "tools/posenc/deliver.h"
#include "tools/posenc/diagnosis_report.h"
#include "tools/posenc/field_flags.h"
#include "tools/posenc/report.h"

namespace posenc::command {
namespace {

constexpr double kSameFrequency = 1e-5;  // relative; far above the error of a measured one
constexpr size_t kShownNodes = 3;

std::string OperatorOf(const OnnxRotation& rotation) {
  return fmt::format("{} {}", rotation.domain.empty() ? "ai.onnx" : rotation.domain, rotation.op_type);
}

// Says what the measured frequencies have in common with unscaled ones: theta follows from the second pair's.
std::string MeasuredFrequencies(const v1::MeasuredRotation& measured) {
  const int pairs = measured.inv_freq_size();
  std::string text = "of no formula that the table alone shows";
  if (std::fabs(measured.attention_scaling() - 1) > kSameFrequency)
    text += fmt::format("; attention scaling {:.6g}", measured.attention_scaling());
  if (pairs < 2 || !(measured.inv_freq(1) > 0) || std::fabs(measured.inv_freq(0) - 1) > kSameFrequency) return text;
  const auto unscaled = [&](int pair) { return std::pow(measured.inv_freq(1), pair); };
  int kept = 0;
  while (kept < pairs && std::fabs(measured.inv_freq(kept) / unscaled(kept) - 1) < kSameFrequency) ++kept;
  if (kept < 3) return text;  // two pairs always agree
  // The last of these pairs is rounded as the others are, and has the largest exponent.
  const double theta = std::pow(measured.inv_freq(kept - 1), -static_cast<double>(pairs) / (kept - 1));
  text += fmt::format("; pairs 0-{} have those of rope_theta {:.6g}", kept - 1, theta);
  if (kept == pairs) return text;
  return text + fmt::format(", pair {} has its one divided by {:.4g}: compare the graph with its config.json",
                            pairs - 1, unscaled(pairs - 1) / measured.inv_freq(pairs - 1));
}

// Returns what the table is, from the table alone.
std::string FrequenciesOf(const v1::DiagnoseResponse& response) {
  if (response.verdict().kind() == v1::VERDICT_KIND_MATCHES && response.explanations_size() > 0) {
    v1::RotarySettings settings = response.explanations(0).settings();
    settings.clear_rotary_dim();
    return SettingsLine(settings);
  }
  if (response.has_measured() && response.explanations_size() > 0) return MeasuredFrequencies(response.measured());
  return InOneLine(response.verdict());
}

std::string HeadsOf(const OnnxRotation& rotation) {
  if (rotation.num_heads == 0) return "not in the graph";
  if (rotation.kv_num_heads == 0) return fmt::format("{}", rotation.num_heads);
  return fmt::format("{}, k and v {}", rotation.num_heads, rotation.kv_num_heads);
}

// Adds what only some operators have.
void AppendRare(const OnnxRotation& rotation, Rows* rows) {
  if (rotation.rotary_offset != 0) rows->emplace_back("rotary_offset", Decimal(rotation.rotary_offset));
  if (rotation.scale != 0) {
    const bool softmax = rotation.op_type != "RotaryEmbedding";
    rows->emplace_back("scale", fmt::format("{:.6g}: {}", rotation.scale,
                                            softmax ? "of the softmax" : "onnxruntime 1.32 does not multiply by it"));
  }
  if (rotation.is_packed_batching) rows->emplace_back("is_packed_batching", "1: a batch of packed tokens");
  if (!rotation.has_position_ids) rows->emplace_back("position_ids", "absent: row s is for token s");
}

std::string NodesOf(const OnnxRotary& rotary) {
  const size_t count = std::min(rotary.nodes.size(), kShownNodes);
  std::string text =
      absl::StrJoin(rotary.nodes.begin(), rotary.nodes.begin() + static_cast<std::ptrdiff_t>(count), ", ");
  if (count < rotary.nodes.size()) text += fmt::format(" and {} more", rotary.nodes.size() - count);
  return text;
}

struct OnnxExplanation {
  const OnnxRotary* rotary;
  std::optional<v1::DiagnoseResponse> table;
};

std::string Report(const OnnxExplanation& explanation) {
  const OnnxRotary& rotary = *explanation.rotary;
  const OnnxRotation& rotation = rotary.rotation;
  Rows rows = {{"nodes", NodesOf(rotary)}, {"pairing", rotation.interleaved ? "interleaved" : "half-split"}};
  if (!rotary.settings) {
    rows.emplace_back("heads", HeadsOf(rotation));
    AppendRare(rotation, &rows);
    rows.emplace_back("table", rotary.not_stored);
    return NameOfOnnx(rotary) + "\n" + Aligned(rows, "  ");
  }
  const v1::Tensor& cos = rotary.settings->given_table().cos();
  const int64_t width = 2 * cos.shape(1);
  const bool partial = rotation.head_size > width;
  rows.emplace_back("rotary_dim",
                    partial ? fmt::format("{} of head_size {}", width, rotation.head_size) : Decimal(width));
  rows.emplace_back("heads", HeadsOf(rotation));
  AppendRare(rotation, &rows);
  rows.emplace_back("table", fmt::format("{}, {} and {}, {}", TensorReport(HeaderOf("", cos)), rotary.cos_name,
                                         rotary.sin_name, rotary.stored));
  rows.emplace_back("rows", fmt::format("{}: positions 0-{}", cos.shape(0), cos.shape(0) - 1));
  rows.emplace_back("frequencies", FrequenciesOf(*explanation.table));
  if (explanation.table->explanations_size() > 0) {
    rows.emplace_back("equal", AgreementText(explanation.table->explanations(0)));
  }
  return NameOfOnnx(rotary) + "\n" + Aligned(rows, "  ");
}

nlohmann::ordered_json Json(const OnnxExplanation& explanation) {
  const OnnxRotary& rotary = *explanation.rotary;
  const OnnxRotation& rotation = rotary.rotation;
  nlohmann::ordered_json json = {{"domain", rotation.domain.empty() ? "ai.onnx" : rotation.domain},
                                 {"op_type", rotation.op_type},
                                 {"opset", rotation.opset},
                                 {"nodes", rotary.nodes},
                                 {"input_pairing", rotation.interleaved ? "PAIRING_INTERLEAVED" : "PAIRING_HALF_SPLIT"},
                                 {"num_heads", rotation.num_heads},
                                 {"kv_num_heads", rotation.kv_num_heads},
                                 {"head_size", rotation.head_size},
                                 {"rotary_offset", rotation.rotary_offset},
                                 {"scale", rotation.scale},
                                 {"is_packed_batching", rotation.is_packed_batching},
                                 {"has_position_ids", rotation.has_position_ids}};
  if (!rotary.settings) {
    json["not_stored"] = rotary.not_stored;
    return json;
  }
  const v1::Tensor& cos = rotary.settings->given_table().cos();
  json["rotary_dim"] = 2 * cos.shape(1);
  json["rows"] = cos.shape(0);
  json["dtype"] = v1::DataType_Name(cos.dtype());
  json["cos"] = rotary.cos_name;
  json["sin"] = rotary.sin_name;
  json["stored"] = rotary.stored;
  json["frequencies"] = FrequenciesOf(*explanation.table);
  if (explanation.table->explanations_size() > 0) {
    json["worst_ulp"] = explanation.table->explanations(0).worst_ulp();
    json["equal_share"] = explanation.table->explanations(0).equal_share();
  }
  return json;
}

// Names of nodes need not be UTF-8.
std::string Dump(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string NameOfOnnx(const OnnxRotary& rotary) {
  const size_t count = rotary.nodes.size();
  const std::string opset = rotary.rotation.opset == 0 ? "" : fmt::format(" (opset {})", rotary.rotation.opset);
  return fmt::format("{}{}, {} node{}", OperatorOf(rotary.rotation), opset, count, count == 1 ? "" : "s");
}

absl::StatusOr<v1::DiagnoseResponse> DiagnoseOnnx(const v1::RotarySettings& table, const v1::RotarySource* expected,
                                                  int64_t seq_len, Session& session) {
  v1::DiagnoseRequest request;
  if (expected != nullptr) *request.mutable_expected() = *expected;
  request.mutable_positions()->set_offset(0);
  if (seq_len > 0) {
    request.mutable_positions()->set_scaling_length_rule(v1::SCALING_LENGTH_RULE_GIVEN);
    request.mutable_positions()->add_seq_len(seq_len);
  }
  *request.mutable_table()->mutable_cos() = table.given_table().cos();
  *request.mutable_table()->mutable_sin() = table.given_table().sin();
  request.mutable_table()->set_form(table.given_table().form());
  request.set_max_explanations(1);
  return session.backend().Diagnose(request);
}

absl::Status ExplainOnnx(const std::string& path, Session& session) {
  POSENC_ASSIGN_OR_RETURN(const OnnxFile file, ReadRotaryOnnx(path));
  std::string report;
  nlohmann::ordered_json json = {{"producer", file.producer}, {"rotary", nlohmann::ordered_json::array()}};
  for (const OnnxRotary& rotary : file.rotary) {
    OnnxExplanation explanation{&rotary, std::nullopt};
    if (rotary.settings) {
      POSENC_ASSIGN_OR_RETURN(explanation.table, DiagnoseOnnx(*rotary.settings, nullptr, 0, session));
    }
    report += (report.empty() ? "" : "\n") + Report(explanation);
    json["rotary"].push_back(Json(explanation));
  }
  for (const std::string& unread : file.unread) report += fmt::format("\nnot read: {}\n", unread);
  json["unread"] = file.unread;
  return PrintReport(session.json() ? Dump(json) : report);
}

}  // namespace posenc::command
