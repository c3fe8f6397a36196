#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "posenc/base/status.h"
#include "posenc/kernels/convert.h"
#include "posenc/wire/values.h"
#include "tools/posenc/defaults.h"
#include "tools/posenc/deliver.h"
#include "tools/posenc/diagnosis_report.h"
#include "tools/posenc/field_flags.h"
#include "tools/posenc/onnx.h"
#include "tools/posenc/report.h"

namespace posenc::command {
namespace {

constexpr int64_t kRowsAtOnce = 4096;

// Layers of a model, or settings, and the lengths to compare at.
struct OtherLayers {
  std::string title;  // "layers 0-31"; empty for settings
  std::string component;
  v1::RotarySource source;
  v1::AnswerInfo info;
  bool is_gguf = false;
  int64_t max_positions = 0;  // 0: unknown
};

// The largest difference of two tables, and where it is.
struct Gap {
  double difference = 0;
  int64_t position = 0, pair = 0;
};

// The comparison of one operator as it is reported.
struct OnnxFinding {
  std::string title;
  Rows rows;
  std::vector<std::string> differences;  // names of rows
};

// A comparison of an operator with layers at one of their lengths.
struct OnnxMatch {
  size_t layers = 0;
  int length = 0;  // index in info.sequences
  bool same_pairing = false, same_width = false;
  v1::DiagnoseResponse table;

  bool same_table() const { return table.verdict().kind() == v1::VERDICT_KIND_MATCHES; }
  // Fewer is nearer.
  int distance() const {
    return (same_pairing ? 0 : 1) + (same_width ? 0 : 4) +
           (same_table()                                         ? 0
            : table.verdict().kind() == v1::VERDICT_KIND_UNKNOWN ? 3
                                                                 : 2);
  }
};

std::string Both(bool graph_is_a, const std::string& graph, const std::string& other) {
  return fmt::format("a: {}   b: {}", graph_is_a ? graph : other, graph_is_a ? other : graph);
}

// Returns rows of a table as float64.
std::vector<double> RowsOf(const v1::Tensor& table, int64_t begin, int64_t rows) {
  const DType dtype = *wire::Choose("table", table.dtype(), wire::kDataTypes);
  std::vector<double> values(rows * table.shape(1));
  Convert(dtype, DType::kFP64, table.data().data() + begin * table.shape(1) * SizeOf(dtype), values.data(),
          values.size());
  return values;
}

// Widens the gap by rows of two tables of equal width, of which the first is for position `begin`.
void Widen(const v1::Tensor& a, int64_t a_begin, const v1::Tensor& b, int64_t b_begin, int64_t rows, int64_t begin,
           Gap* gap) {
  const std::vector<double> values_a = RowsOf(a, a_begin, rows), values_b = RowsOf(b, b_begin, rows);
  for (size_t n = 0; n < values_a.size(); ++n) {
    const double difference = std::fabs(values_a[n] - values_b[n]);
    if (!(difference > gap->difference)) continue;
    const auto index = static_cast<int64_t>(n);
    *gap = {difference, begin + index / a.shape(1), index % a.shape(1)};
  }
}

std::string TextOf(const Gap& gap) {
  return fmt::format("{:.3g}, at position {} in pair {}", gap.difference, gap.position, gap.pair);
}

// Returns the largest difference of the graph's table from the exact one.
absl::StatusOr<Gap> FromExact(const v1::GivenTable& table, const v1::RotarySource& source, int64_t seq_len,
                              Session& session) {
  Gap gap;
  const int64_t rows = table.cos().shape(0);
  for (int64_t begin = 0; begin < rows; begin += kRowsAtOnce) {
    v1::GenerateTableRequest request;
    *request.mutable_rotary() = source;
    request.mutable_positions()->set_offset(begin);
    if (seq_len > 0) {
      request.mutable_positions()->set_scaling_length_rule(v1::SCALING_LENGTH_RULE_GIVEN);
      request.mutable_positions()->add_seq_len(seq_len);
    }
    const int64_t count = std::min(kRowsAtOnce, rows - begin);
    request.set_count(count);
    request.set_dtype(v1::DATA_TYPE_FP64);
    request.set_form(v1::TABLE_FORM_HALF_WIDTH);
    POSENC_ASSIGN_OR_RETURN(const v1::GenerateTableResponse exact, session.backend().GenerateTable(request));
    Widen(table.cos(), begin, exact.cos(), 0, count, begin, &gap);
    Widen(table.sin(), begin, exact.sin(), 0, count, begin, &gap);
  }
  return gap;
}

// Returns what rotates in the model or the settings.
absl::StatusOr<std::vector<OtherLayers>> ReadOther(const v1::ComparedSettings& other,
                                                   const std::vector<int64_t>& seq_len, Session& session) {
  v1::ExplainRequest request;
  if (other.has_model()) {
    *request.mutable_model() = other.model();
  } else if (other.has_rotary()) {
    *request.mutable_rotary() = other.rotary();
  } else {
    return UsageError("a graph's rotary embedding can be compared with a model, a rotary embedding or another graph");
  }
  for (const int64_t length : seq_len) request.add_seq_len(length);
  POSENC_ASSIGN_OR_RETURN(const v1::ExplainResponse response, session.backend().Explain(request));
  std::vector<OtherLayers> all;
  for (const v1::LayerExplanation& layer : response.layers()) {
    if (!layer.info().rotated()) continue;
    OtherLayers& layers = all.emplace_back();
    layers.info = layer.info();
    layers.component = layer.component();
    if (!other.has_model()) {
      *layers.source.mutable_settings() = other.rotary();
      layers.max_positions = static_cast<int64_t>(other.rotary().max_position_embeddings());
      continue;
    }
    v1::ModelConfig& model = *layers.source.mutable_model();
    model = other.model();
    if (!layer.component().empty()) model.set_component(layer.component());
    if (layer.layer_index_size() > 0) {
      model.set_layer_index(layer.layer_index(0));
      layers.title = "layers " + Ranges(layer.layer_index());
    } else if (!layer.layer_type().empty()) {
      model.set_layer_type(layer.layer_type());
      layers.title = "layer type " + layer.layer_type();
    }
    layers.is_gguf = !model.gguf().empty();
    layers.max_positions = MaxPositionsOf(model);
  }
  if (all.empty()) return UsageError("the other side has no rotary embedding");
  return all;
}

int LengthsOf(const OtherLayers& layers) { return std::max(layers.info.sequences_size(), 1); }
int64_t SeqLenOf(const OtherLayers& layers, int length) {
  return length < layers.info.sequences_size() ? layers.info.sequences(length).seq_len() : 0;
}

// Returns the nearest of the layers at the nearest of their lengths.
absl::StatusOr<OnnxMatch> NearestLayers(const v1::RotarySettings& graph, const std::vector<OtherLayers>& others,
                                        Session& session) {
  std::vector<OnnxMatch> matches;
  for (size_t n = 0; n < others.size(); ++n) {
    const OtherLayers& layers = others[n];
    for (int length = 0; length < LengthsOf(layers); ++length) {
      OnnxMatch match;
      match.layers = n;
      match.length = length;
      match.same_pairing = layers.is_gguf || graph.input_pairing() == layers.info.input_pairing();
      match.same_width = 2 * graph.given_table().cos().shape(1) == layers.info.rotary_dim();
      POSENC_ASSIGN_OR_RETURN(match.table, DiagnoseOnnx(graph, &layers.source, SeqLenOf(layers, length), session));
      matches.push_back(std::move(match));
    }
  }
  return *std::min_element(matches.begin(), matches.end(), [](const OnnxMatch& one, const OnnxMatch& other) {
    return one.distance() < other.distance();
  });
}

// Compares the operators of a graph with the layers of a model, or with settings.
class OnnxWithOther {
 public:
  OnnxWithOther(bool graph_is_a, std::vector<OtherLayers> others)
      : graph_is_a_(graph_is_a), others_(std::move(others)) {}

  absl::Status Add(const OnnxRotary& rotary, Session& session) {
    OnnxFinding& finding = findings_.emplace_back();
    finding.title = NameOfOnnx(rotary);
    if (!rotary.settings) {
      return absl::InvalidArgumentError(fmt::format("{}: {}", finding.title, rotary.not_stored));
    }
    POSENC_ASSIGN_OR_RETURN(const OnnxMatch match, NearestLayers(*rotary.settings, others_, session));
    const OtherLayers& layers = others_[match.layers];
    if (!layers.title.empty()) finding.title += ", and " + layers.title;
    if (const int64_t seq_len = SeqLenOf(layers, match.length); seq_len > 0) {
      finding.rows.emplace_back("at seq_len", Decimal(seq_len));
    }
    AddPairing(rotary, layers, match, &finding);
    const int64_t width = 2 * rotary.settings->given_table().cos().shape(1);
    finding.rows.emplace_back("rotary_dim", match.same_width
                                                ? Decimal(width)
                                                : Both(graph_is_a_, Decimal(width), Decimal(layers.info.rotary_dim())));
    if (!match.same_width) finding.differences.emplace_back("rotary_dim");
    POSENC_RETURN_IF_ERROR(AddTable(rotary, layers, match, session, &finding));
    rows_.push_back(rotary.settings->given_table().cos().shape(0));
    matches_.push_back(match);
    return absl::OkStatus();
  }

  // Adds what concerns all operators together: rows, and layers without one.
  std::vector<OnnxFinding> Finish() && {
    std::set<std::string> components;
    std::set<std::pair<size_t, int>> matched;
    for (size_t n = 0; n < matches_.size(); ++n) {
      const OnnxMatch& match = matches_[n];
      components.insert(others_[match.layers].component);
      if (match.same_table()) matched.emplace(match.layers, match.length);
      AddRows(n);
    }
    for (size_t n = 0; n < others_.size(); ++n) {
      if (!components.contains(others_[n].component)) continue;
      for (int length = 0; length < LengthsOf(others_[n]); ++length) {
        if (matched.contains({n, length}) || others_.size() * LengthsOf(others_[n]) == 1) continue;
        std::string title = others_[n].title.empty() ? "the settings" : others_[n].title;
        if (LengthsOf(others_[n]) > 1) title += fmt::format(" at seq_len {}", SeqLenOf(others_[n], length));
        findings_.push_back({title, {{"table", "no operator of the graph has it"}}, {"table"}});
      }
    }
    return std::move(findings_);
  }

 private:
  void AddPairing(const OnnxRotary& rotary, const OtherLayers& layers, const OnnxMatch& match, OnnxFinding* finding) {
    const std::string graph = EnumName(rotary.settings->input_pairing()), other = EnumName(layers.info.input_pairing());
    std::string text = graph;
    if (layers.is_gguf) text += ", not compared: the conversion to GGUF permutes the rows of the weights";
    if (!match.same_pairing) {
      text = Both(graph_is_a_, graph, other) + "; right only if the export permuted the rows of q's and k's weights";
      finding->differences.emplace_back("pairing");
    }
    finding->rows.emplace_back("pairing", text);
  }

  absl::Status AddTable(const OnnxRotary& rotary, const OtherLayers& layers, const OnnxMatch& match, Session& session,
                        OnnxFinding* finding) {
    finding->rows.emplace_back("table", InOneLine(match.table.verdict()));
    if (!match.same_table()) {
      finding->differences.emplace_back("table");
      return absl::OkStatus();
    }
    POSENC_ASSIGN_OR_RETURN(const Gap gap, FromExact(rotary.settings->given_table(), layers.source,
                                                     SeqLenOf(layers, match.length), session));
    std::string why;
    if (match.table.explanations_size() > 0) {
      why = fmt::format("; frequencies and angles in {} explain it",
                        EnumName(match.table.explanations(0).precision().frequencies()));
    }
    finding->rows.emplace_back("from exact", gap.difference == 0 ? "no difference" : "at most " + TextOf(gap) + why);
    return absl::OkStatus();
  }

  void AddRows(size_t n) {
    const OtherLayers& layers = others_[matches_[n].layers];
    OnnxFinding& finding = findings_[n];
    std::string text = Decimal(rows_[n]);
    int64_t most = 0;  // of the operators for these layers: a table for short sequences may have few
    for (size_t other = 0; other < rows_.size(); ++other) {
      if (matches_[other].layers == matches_[n].layers) most = std::max(most, rows_[other]);
    }
    if (layers.max_positions > 0) text += fmt::format(" of max_position_embeddings {}", layers.max_positions);
    if (most < layers.max_positions) {
      text += fmt::format(": positions from {} on have none", most);
      finding.differences.emplace_back("rows");
    }
    finding.rows.emplace_back("rows", text);
  }

  const bool graph_is_a_;
  const std::vector<OtherLayers> others_;
  std::vector<OnnxFinding> findings_;
  std::vector<OnnxMatch> matches_;  // with rows_, one for each of the first findings
  std::vector<int64_t> rows_;
};

// Compares operators of two graphs, entry by entry.
OnnxFinding CompareTables(const OnnxRotary& a, const OnnxRotary& b) {
  OnnxFinding finding{NameOfOnnx(a) + ", and " + NameOfOnnx(b), {}, {}};
  const auto add = [&finding](const std::string& name, const std::string& of_a, const std::string& of_b) {
    finding.rows.emplace_back(name, of_a == of_b ? of_a : Both(true, of_a, of_b));
    if (of_a != of_b) finding.differences.push_back(name);
  };
  const v1::GivenTable &table_a = a.settings->given_table(), &table_b = b.settings->given_table();
  add("pairing", EnumName(a.settings->input_pairing()), EnumName(b.settings->input_pairing()));
  add("rotary_dim", Decimal(2 * table_a.cos().shape(1)), Decimal(2 * table_b.cos().shape(1)));
  add("rows", Decimal(table_a.cos().shape(0)), Decimal(table_b.cos().shape(0)));
  add("type", EnumName(table_a.cos().dtype()), EnumName(table_b.cos().dtype()));
  if (table_a.cos().shape(1) != table_b.cos().shape(1)) return finding;
  Gap gap;
  const int64_t rows = std::min(table_a.cos().shape(0), table_b.cos().shape(0));
  for (int64_t begin = 0; begin < rows; begin += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, rows - begin);
    Widen(table_a.cos(), begin, table_b.cos(), begin, count, begin, &gap);
    Widen(table_a.sin(), begin, table_b.sin(), begin, count, begin, &gap);
  }
  finding.rows.emplace_back("table", gap.difference == 0 ? "no difference" : "differs by at most " + TextOf(gap));
  if (gap.difference != 0) finding.differences.emplace_back("table");
  return finding;
}

absl::StatusOr<std::vector<OnnxFinding>> CompareGraphs(const std::vector<OnnxRotary>& a,
                                                       const std::vector<OnnxRotary>& b) {
  std::vector<OnnxFinding> findings;
  for (size_t n = 0; n < std::max(a.size(), b.size()); ++n) {
    if (n >= a.size() || n >= b.size()) {
      const std::string title = NameOfOnnx(n < a.size() ? a[n] : b[n]);
      findings.push_back({title, {{"operator", "the other graph lacks it"}}, {"operator"}});
      continue;
    }
    for (const OnnxRotary* rotary : {&a[n], &b[n]}) {
      if (rotary->settings) continue;
      return absl::InvalidArgumentError(fmt::format("{}: {}", NameOfOnnx(*rotary), rotary->not_stored));
    }
    findings.push_back(CompareTables(a[n], b[n]));
  }
  return findings;
}

absl::StatusOr<std::vector<OnnxRotary>> ReadGraph(const OnnxSide& side) {
  POSENC_ASSIGN_OR_RETURN(const OnnxFile file, ReadRotaryOnnx(side.graph));
  return ChooseOnnx(file, side.graph, side.node);
}

absl::StatusOr<std::vector<OnnxFinding>> FindDifferences(const OnnxSide& a, const OnnxSide& b,
                                                         const std::vector<int64_t>& seq_len, Session& session) {
  const bool graph_is_a = !a.graph.empty();
  POSENC_ASSIGN_OR_RETURN(const std::vector<OnnxRotary> graph, ReadGraph(graph_is_a ? a : b));
  if (graph_is_a && !b.graph.empty()) {
    POSENC_ASSIGN_OR_RETURN(const std::vector<OnnxRotary> other, ReadGraph(b));
    return CompareGraphs(graph, other);
  }
  POSENC_ASSIGN_OR_RETURN(std::vector<OtherLayers> others, ReadOther(graph_is_a ? b.other : a.other, seq_len, session));
  OnnxWithOther comparison(graph_is_a, std::move(others));
  for (const OnnxRotary& rotary : graph) POSENC_RETURN_IF_ERROR(comparison.Add(rotary, session));
  return std::move(comparison).Finish();
}

}  // namespace

absl::Status CompareOnnx(const OnnxSide& a, const OnnxSide& b, const std::vector<int64_t>& seq_len, Session& session) {
  POSENC_ASSIGN_OR_RETURN(const std::vector<OnnxFinding> findings, FindDifferences(a, b, seq_len, session));
  const bool same = std::all_of(findings.begin(), findings.end(),
                                [](const OnnxFinding& finding) { return finding.differences.empty(); });
  session.set_exit_code(same ? kDone : kNo);
  nlohmann::ordered_json json = {{"same", same}, {"rotary", nlohmann::ordered_json::array()}};
  std::string report = same ? "same: a and b give the same positional encoding\n"
                            : "different: a and b do not give the same positional encoding\n";
  for (const OnnxFinding& finding : findings) {
    report += fmt::format(
        "\n{}: {}\n", finding.title,
        finding.differences.empty() ? "same" : fmt::format("different: {}", fmt::join(finding.differences, ", ")));
    report += Aligned(finding.rows, "  ");
    nlohmann::ordered_json& entry = json["rotary"].emplace_back();
    entry = {{"title", finding.title}, {"differences", finding.differences}};
    for (const auto& [name, value] : finding.rows) entry[name] = value;
  }
  const auto replace = nlohmann::json::error_handler_t::replace;
  if (session.json()) return PrintReport(json.dump(2, ' ', false, replace) + "\n");
  return PrintVerdict(report, session.exit_code());
}

}  // namespace posenc::command
