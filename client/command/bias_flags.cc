#include "client/command/bias_flags.h"

#include <google/protobuf/descriptor.h>

#include "client/command/field_flags.h"
#include "client/command/session.h"
#include "client/command/values.h"
#include "posenc/status.h"

namespace posenc::command {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr struct {
  const char* flag;
  const char* help;
} kHelp[] = {
    {"--t5-num-buckets", "Rows of the table; default 32"},
    {"--t5-max-distance", "Farther keys share the last bucket; default 128"},
    {"--t5-bidirectional", "true in an encoder, false in a decoder"},
    {"--kerple-kernel", "log: -p ln(1 + a |i-j|); power: -a |i-j|^p"},
    {"--kerple-a", "One a head; at least 0.01"},
    {"--kerple-p", "One a head; at least 0.01, with power at most 2"},
    {"--sandwich-convention", "The paper's formula, or its program"},
    {"--sandwich-num-heads", "All heads of the model"},
    {"--sandwich-dim", "Width of the sinusoidal encoding; default 128"},
    {"--sandwich-base", "Default 10000"},
    {"--swin-window-height", "Tokens"},
    {"--swin-window-width", "Tokens"},
    {"--beit-window-height", "Tokens, without cls"},
    {"--beit-window-width", "Tokens, without cls"},
    {"--beit-table", "How rows are ordered where the window is no square"},
    {"--swin-v2-window-height", "Tokens"},
    {"--swin-v2-window-width", "Tokens"},
    {"--swin-v2-pretrained-window-height", "Normalises displacements; default the window's"},
    {"--swin-v2-pretrained-window-width", "The same"},
    {"--swin-v2-hidden-weight", "Of the network, [hidden, 2]"},
    {"--swin-v2-hidden-bias", "[hidden]"},
    {"--swin-v2-output-weight", "[H, hidden]"},
    {"--fire-c", "Scales distances; learned, from 0.1 on"},
    {"--fire-threshold", "|L_multiplier * L|: the least that normalises; learned, from 512 on"},
    {"--fire-epsilon", "Default 1e-6"},
    {"--fire-hidden-weight", "Of the network, [width]"},
    {"--fire-hidden-bias", "[width]"},
    {"--fire-output-weight", "[H, width]"},
    {"--fire-output-bias", "[H]"},
    {"--nope-num-heads", "Default 1; with --scores they say it"},
};

const FieldDescriptor& MethodOf(const v1::BiasMethod& method) {
  const auto* oneof = v1::BiasMethod::descriptor()->FindOneofByName("method");
  return *method.GetReflection()->GetOneofFieldDescriptor(method, oneof);
}

const Message& SettingsOf(const v1::BiasMethod& method) {
  return method.GetReflection()->GetMessage(method, &MethodOf(method));
}

void AddFillFlag(CLI::App& app, v1::Mask* mask) {
  app.add_option_function<std::string>(
         "--fill",
         [mask](const std::string& text) {
           if (text == "-inf") {
             mask->set_fill_kind(v1::MASK_FILL_NEGATIVE_INFINITY);
           } else if (text == "lowest") {
             mask->set_fill_kind(v1::MASK_FILL_LOWEST_FINITE);
           } else if (const auto number = ParseDouble(text); number.ok()) {
             mask->set_fill_value(*number);
           } else {
             throw CLI::ValidationError("--fill", "is neither -inf, lowest nor a number");
           }
         },
         "What hidden cells hold; lowest: the type's lowest finite value")
      ->type_name("-inf|lowest|N")
      ->group("Mask");
}

}  // namespace

void BiasMethodFlags::Add(CLI::App& app) {
  AddFieldFlags(app, "ALiBi, in place of --model", &alibi_,
                {{"num_heads", "All heads of the model"},
                 {"rule", "How slopes follow from the number of heads", "--slopes"},
                 {"given", "Slopes, [H] or [B, H]", "--given-slopes"},
                 {"log_slopes", "Learned logarithms of slopes, [H]"},
                 {"form", "What is added: each model family has its own"},
                 {"alibi_bias_max", "The exponent's range; default 8"},
                 {"future_slopes", "For keys after the query, with --form asymmetric"},
                 {"position_mask", "BOOL [B, Sk], with --form bloom: moves positions as left padding does"},
                 {"bias_dtype", "Rounds slope, position and bias to this type first: bf16 for falcon", nullptr,
                  "fp32|fp16|bf16"}});
  const auto* oneof = v1::BiasMethod::descriptor()->FindOneofByName("method");
  for (int n = 0; n < oneof->field_count(); ++n) {
    const FieldDescriptor& field = *oneof->field(n);
    if (field.name() == "alibi" || field.name() == "model") continue;
    v1::BiasMethod& method = others_.emplace_back();
    method.GetReflection()->MutableMessage(&method, &field);
  }
  for (v1::BiasMethod& method : others_) {  // now that they stay where they are
    const FieldDescriptor& field = MethodOf(method);
    AddPrefixedFieldFlags(app, field.name() + ", in place of --model", FlagName(field.name()),
                          method.GetReflection()->MutableMessage(&method, &field));
  }
  for (const auto& [flag, help] : kHelp) app.get_option(flag)->description(help);
  app.add_flag("--nope", nope_, "No bias, only the mask")->group("nope, in place of --model");
}

void BiasMethodFlags::AddTable(CLI::App& app) {
  AddFieldFlags(app, "Table", &table_,
                {{"table", "The values of T5, Swin, BEiT, by bucket and head"},
                 {"table_layout", "Which of the table's axes is which"}});
}

std::string BiasMethodFlags::First() const {
  if (IsSet(alibi_)) return FirstFlagOf(alibi_);
  for (const v1::BiasMethod& method : others_) {
    if (IsSet(SettingsOf(method))) return FlagName(MethodOf(method).name()) + FirstFlagOf(SettingsOf(method)).substr(1);
  }
  return nope_ ? "--nope" : "";
}

absl::StatusOr<v1::BiasMethod> BiasMethodFlags::Get() const {
  std::vector<v1::BiasMethod> given;
  if (IsSet(alibi_)) *given.emplace_back().mutable_alibi() = alibi_;
  for (const v1::BiasMethod& method : others_) {
    const bool chosen = IsSet(SettingsOf(method)) || (nope_ && method.has_nope());
    if (chosen) given.push_back(method);
  }
  if (given.size() > 1) {
    return UsageError("flags of " + MethodOf(given[0]).name() + " and of " + MethodOf(given[1]).name() +
                      ": a bias has one method");
  }
  v1::BiasMethod method = table_;
  if (!given.empty()) method.MergeFrom(given[0]);
  return method;
}

void BiasFlags::Add(CLI::App& app) {
  method_.Add(app);
  method_.AddTable(app);
  model_.Add(app);
}

absl::StatusOr<v1::BiasMethod> BiasFlags::Get() const {
  const std::string first = method_.First();
  if (model_.given() && !first.empty()) return UsageError(first + ": not together with --model, which says it");
  POSENC_ASSIGN_OR_RETURN(v1::BiasMethod method, method_.Get());
  if (model_.given()) {
    POSENC_ASSIGN_OR_RETURN(*method.mutable_model(), model_.Get());
    return method;
  }
  POSENC_RETURN_IF_ERROR(model_.CheckUnused());
  if (first.empty()) {
    return UsageError(
        "give --model config.json, or a method: --num-heads, --slopes and --form; --t5-bidirectional; ...");
  }
  return method;
}

void AddGeometryFlags(CLI::App& app, v1::BiasGeometry* geometry) {
  AddFieldFlags(app, "Geometry", geometry,
                {{"query_length", "Sq; with --scores they say it"},
                 {"key_length", "Sk; with --scores they say it"},
                 {"query_offset", "Where the first query stands; required where Sq and Sk differ"},
                 {"query_offsets", "The same, one a batch row"},
                 {"query_positions", "Where each query stands, [Sq] or [B, Sq]"},
                 {"key_positions", "Where each key stands, [Sk] or [B, Sk]"},
                 {"head_start", "First of the model's heads that is wanted"},
                 {"head_count", "How many are wanted; default all from there"}});
}

void AddMaskFlags(CLI::App& app, v1::Mask* mask) {
  AddFieldFlags(app, "Mask", mask,
                {{"causal", "Hides keys after the query"},
                 {"window_left", "Hides keys more than N before the query"},
                 {"window_right", "Hides keys more than N after the query"},
                 {"prefix_length", "Shows keys before N to every query, with --causal; one, or one a batch row"},
                 {"query_documents", "Hides keys of another document, [Sq] or [B, Sq]"},
                 {"key_documents", "The same, [Sk] or [B, Sk]"},
                 {"key_valid", "BOOL [B, Sk]: padding"},
                 {"fully_masked_row", "What a query that sees no key gets"}});
  AddFillFlag(app, mask);
}

}  // namespace posenc::command
