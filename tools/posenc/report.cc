#include "tools/posenc/report.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <numbers>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/reflection.h>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "tools/files/decimal.h"
#include "tools/posenc/field_flags.h"
#include "tools/posenc/messages.h"

namespace posenc::command {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

template <class Number>
std::string ListOf(const std::vector<Number>& values) {
  constexpr size_t kShown = 4;
  std::string text = "[";
  for (size_t i = 0; i < std::min(values.size(), kShown); ++i) {
    absl::StrAppend(&text, i ? ", " : "", Decimal(values[i]));
  }
  if (values.size() > kShown) absl::StrAppend(&text, ", ... ", values.size() - kShown, " more");
  return text + "]";
}

std::string ValueText(const Message& message, const FieldDescriptor& field) {
  const auto* reflection = message.GetReflection();
  if (field.is_repeated()) {
    const int size = reflection->FieldSize(message, &field);
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
      const auto values = reflection->GetRepeatedFieldRef<int64_t>(message, &field);
      return ListOf(std::vector<int64_t>(values.begin(), values.end()));
    }
    if (field.cpp_type() != FieldDescriptor::CPPTYPE_DOUBLE) return absl::StrCat(size, " values");
    std::vector<double> values;
    for (int i = 0; i < size; ++i) values.push_back(reflection->GetRepeatedDouble(message, &field, i));
    return ListOf(values);
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE: return Decimal(reflection->GetDouble(message, &field));
    case FieldDescriptor::CPPTYPE_INT32: return absl::StrCat(reflection->GetInt32(message, &field));
    case FieldDescriptor::CPPTYPE_INT64: return absl::StrCat(reflection->GetInt64(message, &field));
    case FieldDescriptor::CPPTYPE_BOOL: return reflection->GetBool(message, &field) ? "true" : "false";
    case FieldDescriptor::CPPTYPE_ENUM: {
      const int number = reflection->GetEnumValue(message, &field);
      const auto* value = field.enum_type()->FindValueByNumber(number);
      return value == nullptr ? absl::StrCat(number) : EnumName(*value);  // null: of a newer server
    }
    case FieldDescriptor::CPPTYPE_STRING: return absl::CEscape(reflection->GetString(message, &field));
    default: return "";
  }
}

// Appends the fields that are set; fields of nested messages are inserted in place.
void AppendFields(const Message& message, Rows* rows) {
  std::vector<const FieldDescriptor*> set;
  message.GetReflection()->ListFields(message, &set);
  const auto joined = [](const Message& part) {
    Rows inner;
    AppendFields(part, &inner);
    return absl::StrJoin(inner, ", ", absl::PairFormatter(" "));
  };
  for (const FieldDescriptor* field : set) {
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && field->is_repeated()) {
      for (int i = 0; i < message.GetReflection()->FieldSize(message, field); ++i) {
        rows->emplace_back(absl::StrCat(field->name(), "[", i, "]"),
                           joined(message.GetReflection()->GetRepeatedMessage(message, field, i)));
      }
    } else if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      rows->emplace_back(field->name(), ValueText(message, *field));
    } else if (field->message_type() == v1::Tensor::descriptor()) {
      const auto& tensor = static_cast<const v1::Tensor&>(message.GetReflection()->GetMessage(message, field));
      rows->emplace_back(field->name(), TensorReport(HeaderOf("", tensor)));
    } else if (field->message_type() == v1::QueryScale::descriptor()) {
      rows->emplace_back(field->name(), joined(message.GetReflection()->GetMessage(message, field)));
    } else if (const Message& inner = message.GetReflection()->GetMessage(message, field); inner.ByteSizeLong() > 0) {
      AppendFields(inner, rows);
    } else {
      rows->emplace_back(field->name(), "present, with weights from the request");
    }
  }
}

// Appends the name of the set member of the oneof, and its settings.
void AppendMethod(const Message& message, Rows* rows, const char* cases = "method") {
  const auto* oneof = message.GetDescriptor()->FindOneofByName(cases);
  const FieldDescriptor* method = message.GetReflection()->GetOneofFieldDescriptor(message, oneof);
  if (method == nullptr) {
    rows->emplace_back("method", "unknown to this version");
    return;
  }
  rows->emplace_back("method", method->name());
  AppendFields(message.GetReflection()->GetMessage(message, method), rows);
}

std::string PairingText(const v1::AnswerInfo& info) {
  const std::string in = EnumName(info.input_pairing()), out = EnumName(info.output_pairing());
  return in == out ? in : absl::StrCat(in, " input, ", out, " output");
}

void AppendInfo(const v1::AnswerInfo& info, Rows* rows) {
  const v1::PrecisionAxes& axes = info.precision();
  if (!info.layer_type().empty()) rows->emplace_back("layer type", info.layer_type());
  if (info.rotary_dim() > 0 && !info.rotated()) rows->emplace_back("rotated", "no: this layer has no rotary embedding");
  if (info.rotary_dim() > 0) rows->emplace_back("rotary_dim", absl::StrCat(info.rotary_dim()));
  if (info.input_pairing() != v1::PAIRING_UNSPECIFIED) rows->emplace_back("pairing", PairingText(info));
  rows->emplace_back("precision", absl::StrCat("frequencies ", EnumName(axes.frequencies()), ", tables ",
                                               EnumName(axes.table_dtype()), ", rounding ", EnumName(axes.rounding())));
  constexpr int kShown = 4;
  for (int i = 0; i < std::min(info.sequences_size(), kShown); ++i) {
    const v1::SequenceInfo& sequence = info.sequences(i);
    std::string text = Decimal(sequence.attention_scaling());
    if (sequence.seq_len() > 0) absl::StrAppend(&text, ", seq_len ", sequence.seq_len());
    if (!sequence.branch().empty()) absl::StrAppend(&text, ", branch ", sequence.branch());
    rows->emplace_back("attention scaling", text);
  }
  if (info.sequences_size() > kShown) {
    rows->emplace_back("", absl::StrCat("... ", info.sequences_size() - kShown, " more"));
  }
  if (!info.plan_fingerprint().empty()) {
    rows->emplace_back("fingerprint", absl::BytesToHexString(info.plan_fingerprint()));
  }
  rows->emplace_back("computed by", absl::StrCat(info.device(), ", numerics ", info.numerics_version()));
}

std::string Notes(const v1::AnswerInfo& info) {
  std::string text;
  for (const v1::Note& note : info.notes()) {
    absl::StrAppend(&text, "note: ", note.field().empty() ? "" : note.field() + ": ", InTypedValues(note.message()),
                    "\n");
  }
  return text;
}

// Says what the entries of a plan's frequencies are if they are not one per pair.
std::string OrderOf(const v1::Plan& plan, int64_t pairs) {
  if (plan.frequencies(0).inv_freq_size() == pairs) return "";
  return plan.rotary().has_given_frequencies() ? "by head, pair and axis"
                                               : "of the pairs' first elements, then of the second ones";
}

std::string FrequencyTable(const v1::EffectiveFrequencies& frequencies, const std::string& order) {
  constexpr int kEnds = 4;
  const int count = frequencies.inv_freq_size();
  if (count == 0) return "";
  std::string text = absl::StrFormat("\n  %6s  %-24s  %s\n", order.empty() ? "pair" : "entry", "inv_freq (rad/token)",
                                     "wavelength (tokens)");
  if (!order.empty()) absl::StrAppend(&text, "  (", order, ")\n");
  for (int i = 0; i < count; ++i) {
    if (i == kEnds && count > 2 * kEnds + 1) {
      absl::StrAppend(&text, "     ...\n");
      i = count - kEnds;
    }
    const double frequency = frequencies.inv_freq(i);
    text += absl::StrFormat("  %6d  %-24s  %.6g", i, Decimal(frequency), 2 * std::numbers::pi / frequency);
    absl::StrAppend(&text, i < frequencies.axis_size() ? absl::StrCat("  axis ", frequencies.axis(i)) : "", "\n");
  }
  return text;
}

// Draws runs of pairs as a line of at most 64 characters: "[####++++....]".
std::string Picture(const v1::ExplanationText& text) {
  if (text.runs_size() == 0) return "";
  constexpr int64_t kWidth = 64;
  const int64_t pairs = text.runs(text.runs_size() - 1).last() + 1, width = std::min(pairs, kWidth);
  std::string line, legend;
  const bool blends = std::any_of(text.runs().begin(), text.runs().end(), [](const v1::PairRun& run) {
    return run.scaling() == v1::PAIR_SCALING_INTERPOLATED;
  });
  const auto mark = [blends](v1::PairScaling scaling) {
    switch (scaling) {
      case v1::PAIR_SCALING_KEPT: return std::pair{'#', "kept"};
      case v1::PAIR_SCALING_INTERPOLATED: return std::pair{'.', "slowed"};
      case v1::PAIR_SCALING_STOPPED: return std::pair{' ', "stopped"};
      default: return std::pair{'+', blends ? "blended" : "slowed unequally"};
    }
  };
  int run = 0;
  for (int64_t column = 0; column < width; ++column) {
    while (text.runs(run).last() < column * pairs / width) ++run;
    line += mark(text.runs(run).scaling()).first;
  }
  for (const v1::PairRun& each : text.runs()) {
    const auto [symbol, word] = mark(each.scaling());
    const std::string entry = absl::StrCat("  ", std::string(1, symbol), " ", word);
    if (!absl::StrContains(legend, entry)) legend += entry;
  }
  return absl::StrCat("  pair 0 [", line, "] ", pairs - 1, legend, "\n");
}

std::string Explanation(const v1::ExplanationText& text) {
  std::string lines;
  for (const std::string& sentence : text.sentence()) absl::StrAppend(&lines, "  ", InTypedValues(sentence), "\n");
  return lines + Picture(text);
}

// Formats a speed in GB/s, to two decimals.
std::string Rate(const v1::Speed& speed) {
  return absl::StrCat(absl::SixDigits(std::round(1e-7 / speed.seconds_a_byte()) / 100), " GB/s");
}

}  // namespace

std::string Decimal(int64_t value) { return absl::StrCat(value); }

std::string Decimal(double value) {
  std::string text;
  if (std::fabs(value) >= 1e-4 && std::fabs(value) < 1e15) {
    char buffer[40];
    text.assign(buffer, std::to_chars(buffer, std::end(buffer), value, std::chars_format::fixed).ptr);
  } else {
    AppendDecimal(value, &text);
  }
  return text;
}

std::string Ranges(const google::protobuf::RepeatedField<uint32_t>& indices) {
  std::string text;
  for (int begin = 0, end = 0; begin < indices.size(); begin = end) {
    for (end = begin + 1; end < indices.size() && indices[end] == indices[end - 1] + 1;) ++end;
    absl::StrAppend(&text, begin ? ", " : "", indices[begin]);
    if (end - begin > 1) absl::StrAppend(&text, "-", indices[end - 1]);
  }
  return text;
}

std::string Aligned(const Rows& rows, const std::string& indent) {
  size_t width = 0;
  for (const auto& [name, value] : rows) width = std::max(width, name.size());
  std::string text;
  for (const auto& [name, value] : rows) {
    absl::StrAppend(&text, indent, name, std::string(width + 2 - name.size(), ' '), value, "\n");
  }
  return text;
}

std::string TensorReport(const TensorHeader& header) {
  return absl::StrCat(absl::AsciiStrToUpper(EnumName(header.dtype)), " [", absl::StrJoin(header.shape, ", "), "]");
}

std::string InfoReport(const v1::AnswerInfo& info) {
  Rows rows;
  AppendInfo(info, &rows);
  return Aligned(rows) + Notes(info);
}

std::string LayerReport(const v1::LayerExplanation& layer) {
  const v1::Plan& plan = layer.info().plan();
  std::string text;
  if (!layer.component().empty()) absl::StrAppend(&text, "component ", layer.component(), "\n");
  if (layer.layer_index_size() > 0) absl::StrAppend(&text, "layers ", Ranges(layer.layer_index()), "\n");
  Rows rows;
  if (plan.has_rotary()) AppendFields(plan.rotary(), &rows);
  if (plan.has_bias()) {
    AppendMethod(plan.bias(), &rows);
    v1::BiasMethod table = plan.bias();
    table.clear_method();
    AppendFields(table, &rows);
  }
  if (plan.has_relative()) AppendMethod(plan.relative(), &rows);
  if (plan.has_learned()) {
    rows.emplace_back("method", "learned");
    rows.emplace_back("offset", Decimal(plan.learned().offset()));
    if (plan.learned().has_resize()) AppendFields(plan.learned().resize(), &rows);
  }
  if (plan.has_sinusoidal() || plan.has_grid()) AppendMethod(plan, &rows, "settings");
  // Skip rotary_dim and pairing of the answer: they are among the settings.
  Rows info;
  AppendInfo(layer.info(), &info);
  for (auto& row : info) {
    if (plan.has_rotary() && (row.first == "rotary_dim" || row.first == "pairing")) continue;
    rows.push_back(std::move(row));
  }
  if (plan.has_rotary()) rows.emplace_back("softmax factor", Decimal(plan.softmax_scale_factor()));
  if (plan.slopes_size() > 0) {
    rows.emplace_back("slopes", ListOf<double>({plan.slopes().begin(), plan.slopes().end()}));
  }
  text += Aligned(rows, "  ");
  if (plan.frequencies_size() == 0 && layer.text_size() > 0) absl::StrAppend(&text, "\n", Explanation(layer.text(0)));
  for (int i = 0; i < plan.frequencies_size(); ++i) {
    if (plan.frequencies_size() > 1 && i < layer.info().sequences_size()) {
      absl::StrAppend(&text, "\n  seq_len ", layer.info().sequences(i).seq_len());
    }
    if (i < layer.text_size()) absl::StrAppend(&text, "\n", Explanation(layer.text(i)));
    text += FrequencyTable(plan.frequencies(i), OrderOf(plan, layer.info().rotary_dim() / 2));
  }
  return text + Notes(layer.info());
}

std::string SettingsLine(const Message& settings) {
  Rows rows;
  AppendFields(settings, &rows);
  std::erase_if(rows, [](const auto& row) { return row.first.ends_with("_pairing"); });
  return absl::StrJoin(rows, ", ", absl::PairFormatter(" "));
}

std::string ServerReport(const v1::GetServerInfoResponse& response) {
  Rows rows{{"version", absl::StrCat(response.version(), " (", response.build(), ")")},
            {"numerics", absl::StrCat(response.numerics_version())},
            {"config.json", absl::StrCat("rules of ", response.config_rules())},
            {"instructions",
             absl::StrCat(response.cpu_target(), " (available: ", absl::StrJoin(response.cpu_targets(), ", "), ")")}};
  for (const v1::Device& device : response.devices()) {
    std::string text = device.name();
    if (device.threads() > 0) absl::StrAppend(&text, ", ", device.threads(), " threads");
    if (!device.description().empty()) absl::StrAppend(&text, ", ", device.description());
    if (device.rotation().seconds_a_byte() > 0 && device.table().seconds_a_byte() > 0) {
      absl::StrAppend(&text, ", rotation ", Rate(device.rotation()), ", tables ", Rate(device.table()));
    }
    if (!device.withdrawn().empty()) absl::StrAppend(&text, ", withdrawn: ", device.withdrawn());
    rows.emplace_back("device", std::move(text));
  }
  if (!response.device_problem().empty()) rows.emplace_back("device_problem", response.device_problem());
  for (const v1::MethodFamily& family : response.methods()) {
    rows.emplace_back(family.family(), absl::StrJoin(family.methods(), ", "));
  }
  if (response.has_tls_certificate()) {
    const absl::Time until = absl::FromUnixSeconds(response.tls_certificate().not_after_seconds());
    rows.emplace_back("tls_certificate",
                      absl::FormatTime("valid until %Y-%m-%dT%H:%M:%SZ", until, absl::UTCTimeZone()));
  }
  AppendFields(response.limits(), &rows);
  v1::ServerCounters counters = response.counters();
  const std::pair<std::string, v1::CacheCounters> caches[] = {{"plan_cache", counters.plan_cache()},
                                                              {"table_cache", counters.table_cache()}};
  counters.clear_plan_cache();
  counters.clear_table_cache();
  const v1::PoolCounters pool = counters.answer_pool();
  counters.clear_answer_pool();
  AppendFields(counters, &rows);
  rows.emplace_back("answer_pool",
                    absl::StrCat(pool.reused(), " reused, ", pool.allocated(), " allocated, ", pool.bytes(), " bytes"));
  for (const auto& [name, cache] : caches) {
    rows.emplace_back(name,
                      absl::StrCat(cache.hits(), " hits, ", cache.misses(), " misses, ", cache.bytes(), " bytes"));
  }
  return Aligned(rows);
}

}  // namespace posenc::command
