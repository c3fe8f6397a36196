#include "tools/posenc/bias_flags.h"

#include <set>

#include <google/protobuf/descriptor.h>

#include "absl/strings/str_join.h"
#include "posenc/base/status.h"
#include "tools/posenc/field_flags.h"
#include "tools/posenc/session.h"

namespace posenc::command {
namespace {

constexpr struct {
  const char* flag;
  const char* help;
} kBiasHelp[] = {
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
  AddMethodFlags(app, ", in place of --model", &others_, {"alibi", "model"});
  for (const auto& [flag, help] : kBiasHelp) app.get_option(flag)->description(help);
  app.add_flag("--nope", nope_, "No bias, only the mask")->group("nope, in place of --model");
}

void BiasMethodFlags::AddTable(CLI::App& app) {
  AddFieldFlags(app, "Table", &table_,
                {{"table", "The values of T5, Swin, BEiT, by bucket and head"},
                 {"table_layout", "Which of the table's axes is which"}});
}

bool BiasMethodFlags::has_table() const { return IsSet(table_); }

std::string BiasMethodFlags::First() const {
  if (IsSet(alibi_)) return FirstFlagOf(alibi_);
  return IsSet(others_) ? FirstFlagOf(others_) : nope_ ? "--nope" : "";
}

absl::StatusOr<v1::BiasMethod> BiasMethodFlags::Get() const {
  std::set<std::string> given;
  if (IsSet(alibi_)) given.insert("alibi");
  if (nope_) given.insert("nope");
  if (IsSet(others_)) given.insert(v1::BiasMethod::descriptor()->FindFieldByNumber(others_.method_case())->name());
  if (given.size() > 1) {
    return UsageError("flags of " + absl::StrJoin(given, " and of ") + ": a bias has one method");
  }
  v1::BiasMethod method = table_;
  method.MergeFrom(others_);
  if (IsSet(alibi_)) *method.mutable_alibi() = alibi_;
  if (nope_) method.mutable_nope();
  return method;
}

void BiasFlags::Add(CLI::App& app) {
  method_.Add(app);
  method_.AddTable(app);
  model_.Add(app);
}

bool BiasFlags::given() const { return model_.given() || method_.has_table() || !method_.First().empty(); }

absl::StatusOr<v1::BiasMethod> BiasFlags::Get() const {
  const std::string first = method_.First();
  if (model_.given() && !first.empty() && !method_.TakesModel()) {
    return UsageError(first + ": not together with --model, which says it");
  }
  POSENC_ASSIGN_OR_RETURN(v1::BiasMethod method, method_.Get());
  if (method.has_swin_v2()) {
    POSENC_RETURN_IF_ERROR(model_.PutBeside(method.mutable_swin_v2()));
    return method;
  }
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

}  // namespace posenc::command
