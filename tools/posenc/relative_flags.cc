#include "tools/posenc/relative_flags.h"

#include "tools/posenc/field_flags.h"

namespace posenc::command {
namespace {

constexpr struct {
  const char* flag;
  const char* help;
} kRelativeHelp[] = {
    {"--shaw-table", "Relative embeddings [2k+1, d], for all heads"},
    {"--shaw-order",
     "Table row of query i and key j: k + (j - i), as in the paper, or k + (i - j), as in transformers"},
    {"--shaw-clip", "true: distances beyond the table use its outermost row; false: they are an error"},
    {"--shaw-key-term", "Adds k times the row, as BERT's relative_key_query does"},
    {"--shaw-before", "Row of distance 0; default: the middle one"},
    {"--transformer-xl-position-weight", "W_kR, [H*d, d_model] or transposed"},
    {"--transformer-xl-position-layout", "Order of the weight's axes"},
    {"--transformer-xl-position-bias", "v (r_r_bias), [H, d]; default 0"},
    {"--transformer-xl-content-bias", "u (r_w_bias), [H, d]; default 0; only with --content true"},
    {"--transformer-xl-clamp-len", "Distances beyond N count as N; default: no limit"},
    {"--transformer-xl-encoding",
     "halves (default): sines, then cosines; interleaved: alternating, as in conformers; tensor2tensor: halves with "
     "its frequencies"},
    {"--tupe-position-embeddings", "Position embeddings before layer norm, [positions, width]"},
    {"--tupe-layer-norm-weight", "[width]"},
    {"--tupe-layer-norm-bias", "[width]"},
    {"--tupe-layer-norm-epsilon", "Required: models differ"},
    {"--tupe-query-weight", "U_Q, [H*d, width] or transposed; default: identity"},
    {"--tupe-query-layout", "Order of the weight's axes"},
    {"--tupe-query-bias", "[H*d]; default 0"},
    {"--tupe-key-weight", "U_K, [H*d, width] or transposed; default: identity"},
    {"--tupe-key-layout", "Order of the weight's axes"},
    {"--tupe-key-bias", "[H*d]; default 0"},
    {"--tupe-relative-bias-num-buckets", "Number of T5's buckets; default 32"},
    {"--tupe-relative-bias-max-distance", "Keys farther than this share the last bucket; default 128"},
    {"--tupe-relative-bias-bidirectional", "true in an encoder, false in a decoder"},
    {"--tupe-relative-bias-table", "Table of b, one value per bucket and head"},
    {"--tupe-relative-bias-table-layout", "Order of the table's axes; default: from its shape, if it leaves one"},
    {"--tupe-cls", "Whether position 0 (cls) has its own scores (untied), with or without b"},
    {"--deberta-relative-embeddings",
     "Table [2 span, width]; span: position_buckets, or max_relative_positions without buckets"},
    {"--deberta-layer-norm-weight", "[width]; for models with v2's norm_rel_ebd"},
    {"--deberta-layer-norm-bias", "[width]"},
    {"--deberta-layer-norm-epsilon", "Required: models differ"},
    {"--deberta-key-weight", "c2p: pos_proj or key_proj, [H*d, width] or transposed"},
    {"--deberta-key-layout", "Order of the weight's axes"},
    {"--deberta-key-bias", "[H*d]; default 0"},
    {"--deberta-query-weight", "p2c: pos_q_proj or query_proj, [H*d, width] or transposed"},
    {"--deberta-query-layout", "Order of the weight's axes"},
    {"--deberta-query-bias", "[H*d]; default 0"},
    {"--deberta-position-buckets",
     "Number of buckets per direction, even; default (v1): each distance has its own row"},
    {"--deberta-max-relative-positions", "512 in the released models"},
    {"--deberta-distance", "unbounded: as in transformers; clamped: as in Microsoft's code"},
    {"--wpr-wavelet", "ricker: (1-u^2) exp(-u^2/2); gaussian: exp(-u^2); morlet: exp(-u^2) cos(c u); haar: a step"},
    {"--wpr-scales", "Number of scales, which are powers of two; divides d; default 8"},
    {"--wpr-first-exponent", "Exponent of the first scale; default 0"},
    {"--wpr-channels", "Order of the channels: shifts or scales vary fastest"},
    {"--wpr-distance", "Sign of the distance: i - j (query minus key) or j - i"},
    {"--wpr-morlet-frequency", "c of morlet"},
    {"--cope-position-embeddings", "Position embeddings [P, d], for all heads"},
    {"--inkling-projection", "Learned matrix [d_rel, extent]; --q has the relative states, [.., d_rel]"},
    {"--inkling-log-scaling-alpha", "Multiplies the term by 1 + this * ln((p + 1) / n_floor) from n_floor on"},
    {"--inkling-log-scaling-n-floor", "Tokens; the three flags of this factor go together; default: none of them"},
    {"--inkling-scaled",
     "What the factor multiplies before roundings: the bias (Inkling 1), or the states (Inkling 2)"},
};

}  // namespace

void AddRelativeMethodFlags(CLI::App& app, v1::RelativeMethod* method) {
  AddMethodFlags(app, "", method, {});
  for (const auto& [flag, help] : kRelativeHelp) app.get_option(flag)->description(help);
  // A projection without a weight is valid too: it is the identity.
  const auto add_identity = [&](const char* flag, v1::Projection* (v1::Deberta::*term)(), const char* help) {
    const auto set = [method, flag, term] {
      if (method->method_case() != v1::RelativeMethod::METHOD_NOT_SET && !method->has_deberta()) {
        throw CLI::ValidationError(flag, "not allowed with flags of another method; give those of one method");
      }
      (method->mutable_deberta()->*term)();
    };
    app.add_flag_callback(flag, set, help)->group("deberta");
  };
  add_identity("--deberta-key", &v1::Deberta::mutable_key,
               "c2p without a projection: the embeddings are [2 span, H*d]");
  add_identity("--deberta-query", &v1::Deberta::mutable_query,
               "p2c without a projection: the embeddings are [2 span, H*d]");
}

void AddShawValueFlags(CLI::App& app, v1::Shaw* shaw) {
  AddFieldFlags(
      app, "shaw", shaw,
      {{"table", "Relative embeddings a^V, [2k+1, d], for all heads", "--shaw-table"},
       {"before", "Row of distance 0; default: the middle one", "--shaw-before"},
       {"order", "Table row of query i and key j: k + (j - i), as in the paper, or k + (i - j)", "--shaw-order"},
       {"clip", "true: distances beyond the table use its outermost row; false: they are an error", "--shaw-clip"}});
}

}  // namespace posenc::command
