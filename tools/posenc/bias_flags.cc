#include "tools/posenc/bias_flags.h"

#include <set>

#include <google/protobuf/descriptor.h>

#include "absl/strings/str_join.h"
#include "posenc/base/status.h"
#include "tools/posenc/defaults.h"
#include "tools/posenc/field_flags.h"
#include "tools/posenc/session.h"

namespace posenc::command {
namespace {

constexpr struct {
  const char* flag;
  const char* help;
} kBiasHelp[] = {
    {"--t5-num-buckets", "Number of buckets (rows of the table); default 32"},
    {"--t5-max-distance", "Keys farther than this share the last bucket; default 128"},
    {"--t5-bidirectional", "true in an encoder, false in a decoder"},
    {"--kerple-kernel", "log: -p ln(1 + a |i-j|); power: -a |i-j|^p"},
    {"--kerple-a", "One per head; less than 0.01 counts as 0.01"},
    {"--kerple-p", "One per head; less than 0.01 counts as 0.01; with kernel power, more than 2 counts as 2"},
    {"--sandwich-convention", "paper: the paper's formula; snippet: the paper's program"},
    {"--sandwich-num-heads", "Number of heads of the model"},
    {"--sandwich-dim", "Width of the sinusoidal encoding; default 128"},
    {"--sandwich-base", "Default 10000"},
    {"--swin-window-height", "Window height in tokens"},
    {"--swin-window-width", "Window width in tokens"},
    {"--beit-window-height", "Window height in tokens, without the cls token"},
    {"--beit-window-width", "Window width in tokens, without the cls token"},
    {"--beit-table", "Row order of the table; matters only for windows that are not square"},
    {"--swin-v2-window-height", "Window height in tokens"},
    {"--swin-v2-window-width", "Window width in tokens"},
    {"--swin-v2-pretrained-window-height", "Height that normalises displacements; default: the window's"},
    {"--swin-v2-pretrained-window-width", "Width that normalises displacements; default: the window's"},
    {"--swin-v2-hidden-weight", "Weight of the hidden layer, [hidden, 2]"},
    {"--swin-v2-hidden-bias", "Bias of the hidden layer, [hidden]"},
    {"--swin-v2-output-weight", "Weight of the output layer, [H, hidden]"},
    {"--fire-c", "Factor of the distances; learned, initially 0.1"},
    {"--fire-threshold", "|L_multiplier * L|, lower bound of the normalising position; learned, initially 512"},
    {"--fire-epsilon", "Default 1e-6"},
    {"--fire-hidden-weight", "Weight of the hidden layer, [width]"},
    {"--fire-hidden-bias", "Bias of the hidden layer, [width]"},
    {"--fire-output-weight", "Weight of the output layer, [H, width]"},
    {"--fire-output-bias", "Bias of the output layer, [H]"},
    {"--forget-gate-log-gates", "Logarithms of the forget gates, [H, Sk] or [B, H, Sk]; with --causal"},
    {"--forget-gate-cu-seqlens", "Boundaries of sequences packed along the keys: 0, ..., Sk"},
    {"--nope-num-heads", "Number of heads; default: those of --scores, otherwise 1"},
};

}  // namespace

void BiasMethodFlags::Add(CLI::App& app) {
  AddFieldFlags(app, "ALiBi, in place of --model", &alibi_,
                {{"num_heads", "Number of heads of the model"},
                 {"rule", "Rule that computes the slopes from the number of heads", "--slopes"},
                 {"given", "Slopes, [H] or [B, H]", "--given-slopes"},
                 {"log_slopes", "Learned logarithms of slopes, [H]"},
                 {"form", "Formula of the bias; it differs between model families", "--alibi-form"},
                 {"alibi_bias_max", "Range of the exponent; default 8"},
                 {"future_slopes", "Slopes for keys after the query, [H], with --alibi-form asymmetric"},
                 {"bias_dtype", "Type to which slope, position and bias are rounded first; bf16 for falcon", nullptr,
                  "fp32|fp16|bf16"}});
  AddMethodFlags(app, ", in place of --model", &others_, {"alibi", "model"});
  AddFieldFlags(
      app, "Padding", &padding_,
      {{"position_mask",
        "BOOL [B, Sk], for BLOOM or --alibi-form bloom: false for padding, which does not count as a position"}});
  for (const auto& [flag, help] : kBiasHelp) app.get_option(flag)->description(help);
  app.add_flag("--nope", nope_, "No bias, only the mask")->group("nope, in place of --model");
}

void BiasMethodFlags::AddTable(CLI::App& app) {
  AddFieldFlags(app, "Table", &table_,
                {{"table", "Table of T5, Swin or BEiT, one value per bucket and head"},
                 {"table_layout", "Order of the table's axes; default: from its shape, if it leaves one"}});
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
  if (IsSet(others_)) given.emplace(v1::BiasMethod::descriptor()->FindFieldByNumber(others_.method_case())->name());
  if (given.size() > 1) {
    return UsageError("flags of " + absl::StrJoin(given, " and of ") + "; give those of one method");
  }
  v1::BiasMethod method = table_;
  method.MergeFrom(padding_);
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

bool BiasFlags::given() const {
  return model_.given() || method_.has_table() || method_.has_position_mask() || !method_.First().empty();
}

void BiasFlags::AddMissing(Missing* missing) const {
  missing->Add(!model_.given() && model_.CheckUnused().ok() && method_.First().empty(),
               "--model PATH, or a method: --num-heads, --slopes and --alibi-form; --t5-bidirectional; --swin-...; "
               "see the help");
}

absl::StatusOr<v1::BiasMethod> BiasFlags::Get(Session* session) const {
  const std::string first = method_.First();
  if (model_.given() && !first.empty() && !method_.TakesModel()) {
    return UsageError(first + ": not allowed with --model, which sets it");
  }
  POSENC_ASSIGN_OR_RETURN(v1::BiasMethod method, method_.Get());
  if (method.has_swin_v2()) {
    POSENC_RETURN_IF_ERROR(model_.PutBeside(method.mutable_swin_v2()));
    return method;
  }
  if (model_.given()) {
    POSENC_ASSIGN_OR_RETURN(*method.mutable_model(), model_.Get());
    CompleteTableLayout(&method, session);
    return method;
  }
  POSENC_RETURN_IF_ERROR(model_.CheckUnused());
  Missing missing;
  AddMissing(&missing);
  POSENC_RETURN_IF_ERROR(missing.Get());
  CompleteTableLayout(&method, session);
  return method;
}

}  // namespace posenc::command
