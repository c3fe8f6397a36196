#include "tools/posenc/relative_flags.h"

#include "tools/posenc/field_flags.h"

namespace posenc::command {
namespace {

constexpr struct {
  const char* flag;
  const char* help;
} kRelativeHelp[] = {
    {"--shaw-table", "[2k+1, d], for all heads"},
    {"--shaw-order", "Whether row k + (j - i), as in the paper, or k + (i - j), as in transformers"},
    {"--shaw-clip", "true: farther distances take the last row; false: they are an error"},
    {"--shaw-key-term", "Adds k times the row, as BERT's relative_key_query"},
    {"--shaw-before", "Which row is distance 0; default the middle one"},
    {"--transformer-xl-position-weight", "W_kR, [H*d, d_model] or turned"},
    {"--transformer-xl-position-layout", "Which of the weight's axes is which"},
    {"--transformer-xl-position-bias", "v (r_r_bias), [H, d]; default 0"},
    {"--transformer-xl-content-bias", "u (r_w_bias), [H, d]; default 0; only with --content true"},
    {"--transformer-xl-clamp-len", "Farther distances count as N; default all as they are"},
    {"--transformer-xl-encoding", "Sines then cosines (the default), or by turns, as conformers have it"},
    {"--tupe-position-embeddings", "Before layer norm, [positions, width]"},
    {"--tupe-layer-norm-weight", "[width]"},
    {"--tupe-layer-norm-bias", "[width]"},
    {"--tupe-layer-norm-epsilon", "No default: models differ"},
    {"--tupe-query-weight", "U_Q, [H*d, width] or turned; default the rows as they are"},
    {"--tupe-query-layout", "Which of the weight's axes is which"},
    {"--tupe-query-bias", "[H*d]; default 0"},
    {"--tupe-key-weight", "U_K, likewise"},
    {"--tupe-key-layout", "Which of the weight's axes is which"},
    {"--tupe-key-bias", "[H*d]; default 0"},
    {"--tupe-relative-bias-num-buckets", "Of T5's buckets; default 32"},
    {"--tupe-relative-bias-max-distance", "Farther keys share the last bucket; default 128"},
    {"--tupe-relative-bias-bidirectional", "true in an encoder, false in a decoder"},
    {"--tupe-relative-bias-table", "b, by bucket and head"},
    {"--tupe-relative-bias-table-layout", "Which of the table's axes is which"},
    {"--tupe-cls", "Whether position 0 is a token with scores of its own, with or without b"},
    {"--deberta-relative-embeddings", "[2 span, width]; span: the buckets, or max_relative_positions"},
    {"--deberta-layer-norm-weight", "[width]; with v2's norm_rel_ebd"},
    {"--deberta-layer-norm-bias", "[width]"},
    {"--deberta-layer-norm-epsilon", "No default: models differ"},
    {"--deberta-key-weight", "c2p: pos_proj or key_proj, [H*d, width] or turned"},
    {"--deberta-key-layout", "Which of the weight's axes is which"},
    {"--deberta-key-bias", "[H*d]; default 0"},
    {"--deberta-query-weight", "p2c: pos_q_proj or query_proj"},
    {"--deberta-query-layout", "Which of the weight's axes is which"},
    {"--deberta-query-bias", "[H*d]; default 0"},
    {"--deberta-position-buckets", "Even; absent (v1): each distance has its row"},
    {"--deberta-max-relative-positions", "512 in the released models"},
    {"--deberta-distance", "As transformers has it, or Microsoft's own code"},
    {"--wpr-wavelet", "(1-u^2) exp(-u^2/2), exp(-u^2), exp(-u^2) cos(c u), or a step"},
    {"--wpr-scales", "How many, as powers of two; divides d; default 8"},
    {"--wpr-first-exponent", "Of the first scale; default 0"},
    {"--wpr-channels", "What the next channel has: the next shift or the next scale"},
    {"--wpr-distance", "The wavelet's argument: i - j or j - i"},
    {"--wpr-morlet-frequency", "c, with morlet"},
    {"--cope-position-embeddings", "[P, d], for all heads"},
};

}  // namespace

void AddRelativeMethodFlags(CLI::App& app, v1::RelativeMethod* method) {
  AddMethodFlags(app, "", method, {});
  for (const auto& [flag, help] : kRelativeHelp) app.get_option(flag)->description(help);
  // A projection without a weight is valid too: it is the identity.
  const auto add_identity = [&](const char* flag, v1::Projection* (v1::Deberta::*term)(), const char* help) {
    const auto set = [method, flag, term] {
      if (method->method_case() != v1::RelativeMethod::METHOD_NOT_SET && !method->has_deberta()) {
        throw CLI::ValidationError(flag, "not together with flags of another method; give those of one");
      }
      (method->mutable_deberta()->*term)();
    };
    app.add_flag_callback(flag, set, help)->group("deberta");
  };
  add_identity("--deberta-key", &v1::Deberta::mutable_key, "c2p with the embeddings as they are, [2 span, H*d]");
  add_identity("--deberta-query", &v1::Deberta::mutable_query, "p2c with the embeddings as they are");
}

void AddShawValueFlags(CLI::App& app, v1::Shaw* shaw) {
  AddFieldFlags(app, "shaw", shaw,
                {{"table", "a^V, [2k+1, d], for all heads", "--shaw-table"},
                 {"before", "Which row is distance 0; default the middle one", "--shaw-before"},
                 {"order", "Whether row k + (j - i), as in the paper, or k + (i - j)", "--shaw-order"},
                 {"clip", "true: farther distances take the last row; false: they are an error", "--shaw-clip"}});
}

}  // namespace posenc::command
