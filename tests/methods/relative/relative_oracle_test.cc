// Every method of relative terms against its paper in plain double arithmetic.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/kernels/every_target.h"
#include "tests/methods/relative/relative_cases.h"

namespace posenc::relative_oracle_test {
namespace {

using reference::Dot;
using reference::HeadOf;
using reference::Plus;

Attention Drawn(int64_t query_offset = 2) {
  Attention attention;
  attention.Fill(query_offset);
  return attention;
}

// Makes positions unordered and farther apart than a tile's rows.
void Scatter(Attention& attention, double farthest) {
  std::uniform_real_distribution<double> uniform(0, farthest);
  for (auto* positions : {&attention.query_positions, &attention.key_positions}) {
    for (double& position : *positions) position = std::floor(uniform(attention.random));
  }
}

v1::RelativeScoresRequest ShawRequest(const Attention& attention, const std::vector<Row>& table, bool content,
                                      bool key_term) {
  v1::RelativeScoresRequest request = attention.Request(content, content || key_term);
  auto& shaw = *request.mutable_method()->mutable_shaw();
  *shaw.mutable_table() = Weight(table);
  shaw.set_order(v1::SHAW_ORDER_KEY_MINUS_QUERY);
  shaw.set_clip(true);
  shaw.set_key_term(key_term);
  return request;
}

double ShawScore(const Attention& a, const std::vector<Row>& table, bool content, bool key_term, int64_t b, int64_t h,
                 int64_t i, int64_t j) {
  const Row& row = reference::ShawRow(table, -a.Distance(b, i, j));
  double sum = Dot(a.Q(b, h, i), row);
  if (key_term) sum += Dot(a.K(b, h, j), row);
  if (content) sum += Dot(a.Q(b, h, i), a.K(b, h, j));
  return sum / std::sqrt(static_cast<double>(a.dim));
}

TEST(Shaw, KeySide) {
  for (DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16}) {
    for (v1::Layout layout : {v1::LAYOUT_BHSD, v1::LAYOUT_BSHD}) {
      for (bool content : {false, true}) {
        for (bool key_term : {false, true}) {
          Attention a{.dtype = dtype, .layout = layout};
          a.Fill(2);
          const auto table = a.DrawRows(7, a.dim);
          a.Expect(Call(ShawRequest(a, table, content, key_term)),
                   [&](auto b, auto h, auto i, auto j) { return ShawScore(a, table, content, key_term, b, h, i, j); });
        }
      }
    }
  }
}

TEST(Shaw, TilesOfManyKeysAndScatteredPositions) {
  for (double farthest : {300.0, 100000.0}) {
    Attention a{.batch = 1, .heads = 1, .key_heads = 1, .queries = 70, .keys = 600, .dim = 4};
    a.Fill(530);
    const auto table = a.DrawRows(2 * 100000 + 1, a.dim);
    const auto check = [&] {
      a.Expect(Call(ShawRequest(a, table, true, true)),
               [&](auto b, auto h, auto i, auto j) { return ShawScore(a, table, true, true, b, h, i, j); });
    };
    check();
    Scatter(a, farthest);
    check();
  }
}

TEST(Shaw, RelativeKeyOfTransformers) {
  const Attention a = Drawn();
  Attention weights = Drawn();
  const auto table = weights.DrawRows(2 * 16 - 1, a.dim);
  v1::RelativeScoresRequest request = ShawRequest(a, table, false, true);
  request.mutable_method()->mutable_shaw()->set_order(v1::SHAW_ORDER_QUERY_MINUS_KEY);
  request.mutable_method()->mutable_shaw()->set_clip(false);
  a.Expect(Call(request), [&](auto b, auto h, auto i, auto j) {
    const Row& row = table[a.Distance(b, i, j) + 15];
    return (Dot(a.Q(b, h, i), row) + Dot(a.K(b, h, j), row)) / std::sqrt(8.0);
  });
}

TEST(Shaw, ValueSide) {
  for (v1::Layout layout : {v1::LAYOUT_BHSD, v1::LAYOUT_BSHD}) {
    for (bool added : {false, true}) {
      Attention a = Drawn();
      const auto table = a.DrawRows(7, a.dim);
      const std::vector<double> alpha = a.Draw(a.batch * a.heads * a.queries * a.keys), own = a.Draw(a.q.size());
      v1::RelativeValuesRequest request;
      *request.mutable_shaw() = ShawRequest(a, table, false, false).method().shaw();
      *request.mutable_geometry() = a.Request(false, false).geometry();
      request.set_layout(layout);
      request.set_dtype(v1::DATA_TYPE_FP32);
      *request.mutable_probabilities() = MakeTensor(DType::kFP32, {a.batch, a.heads, a.queries, a.keys}, alpha);
      const std::vector<int64_t> shape = layout == v1::LAYOUT_BHSD ? std::vector{a.batch, a.heads, a.queries, a.dim}
                                                                   : std::vector{a.batch, a.queries, a.heads, a.dim};
      if (added) *request.mutable_add_to() = MakeTensor(DType::kFP32, shape, own);
      const auto answer = Call(request);
      ASSERT_THAT(answer, IsOk());
      ASSERT_EQ(ShapeOf(answer->values()), shape);
      const std::vector<double> ours = ValuesOf(answer->values());
      for (int64_t b = 0; b < a.batch; ++b) {
        for (int64_t h = 0; h < a.heads; ++h) {
          for (int64_t i = 0; i < a.queries; ++i) {
            for (int64_t c = 0; c < a.dim; ++c) {
              double z = 0;
              for (int64_t j = 0; j < a.keys; ++j) {
                z += alpha[((b * a.heads + h) * a.queries + i) * a.keys + j] *
                     reference::ShawRow(table, -a.Distance(b, i, j))[c];
              }
              const int64_t row =
                  layout == v1::LAYOUT_BHSD ? (b * a.heads + h) * a.queries + i : (b * a.queries + i) * a.heads + h;
              if (added) z += own[row * a.dim + c];
              EXPECT_NEAR(ours[row * a.dim + c], z, 1e-6);
            }
          }
        }
      }
    }
  }
}

// With few keys only their rows of the table are added up. Keys without probability, which make them many, change no
// bit.
TEST(Shaw, ValuesOfFewKeys) {
  Attention a{.batch = 1, .heads = 2, .key_heads = 2, .queries = 200, .keys = 4, .dim = 6};
  a.Fill(7);
  const auto table = a.DrawRows(419, a.dim);
  constexpr int64_t kAlso = 150;
  std::vector<double> few, many;
  for (int64_t row = 0; row < a.heads * a.queries; ++row) {
    for (int64_t j = 0; j < 4; ++j) few.push_back(std::sin(static_cast<double>(5 * row + j)));
    many.insert(many.end(), few.end() - 4, few.end());
    many.resize(many.size() + kAlso);
  }
  std::vector<int64_t> positions = {9, 3, 9, 12};  // two keys share a row
  std::string values;
  for (const auto* probabilities : {&few, &many}) {
    v1::RelativeValuesRequest request;
    *request.mutable_shaw() = ShawRequest(a, table, false, false).method().shaw();
    request.set_layout(v1::LAYOUT_BHSD);
    request.set_dtype(v1::DATA_TYPE_FP32);
    const auto keys = static_cast<int64_t>(positions.size());
    *request.mutable_probabilities() = MakeTensor(DType::kFP32, {1, a.heads, a.queries, keys}, *probabilities);
    *request.mutable_geometry()->mutable_key_positions() = MakeTensor(DType::kINT64, {keys}, positions);
    request.mutable_geometry()->set_query_offset(0);
    const auto answer = Call(request);
    ASSERT_THAT(answer, IsOk());
    if (values.empty()) values = answer->values().data();
    EXPECT_EQ(answer->values().data(), values);
    positions.resize(4 + kAlso, 12);
  }
}

TEST(TransformerXl, RelativeTerm) {
  for (const std::optional<int64_t> clamp_len : {std::optional<int64_t>(), {3}}) {
    for (bool content : {false, true}) {
      const bool tensor2tensor = clamp_len.has_value() == content;
      Attention a = Drawn(20);
      constexpr int64_t kModel = 12;
      const auto weight = a.DrawRows(a.heads * a.dim, kModel, 0.5), u = a.DrawRows(a.heads, a.dim),
                 v = a.DrawRows(a.heads, a.dim);
      v1::RelativeScoresRequest request = a.Request(content, content);
      auto& xl = *request.mutable_method()->mutable_transformer_xl();
      *xl.mutable_position()->mutable_weight() = Weight(weight);
      xl.mutable_position()->set_layout(v1::WEIGHT_LAYOUT_OUTPUT_BY_INPUT);
      *xl.mutable_position_bias() = Weight(v);
      if (content) *xl.mutable_content_bias() = Weight(u);
      if (clamp_len) xl.set_clamp_len(*clamp_len);
      if (tensor2tensor) xl.set_encoding(v1::TRANSFORMER_XL_ENCODING_TENSOR2TENSOR);
      a.Expect(
          Call(request),
          [&](auto b, auto h, auto i, auto j) {
            auto n = static_cast<double>(a.Distance(b, i, j));
            if (clamp_len) n = std::clamp<double>(n, -*clamp_len, *clamp_len);
            const Row encoding = reference::TransformerXlEncoding(n, kModel, tensor2tensor);
            const Row r = HeadOf(reference::Linear(weight, encoding, {}), h, a.dim);
            double sum = Dot(Plus(a.Q(b, h, i), v[h]), r);
            if (content) sum += Dot(Plus(a.Q(b, h, i), u[h]), a.K(b, h, j));
            return sum / std::sqrt(8.0);
          },
          3e-7);  // R, W R and q + v are rounded
    }
  }
}

struct Projected {
  std::vector<Row> weight;
  Row bias;
};
void Put(const Projected& projection, v1::WeightLayout layout, v1::Projection* message) {
  std::vector<Row> weight = projection.weight;
  if (layout == v1::WEIGHT_LAYOUT_INPUT_BY_OUTPUT) {
    weight.assign(projection.weight[0].size(), Row(projection.weight.size()));
    for (size_t o = 0; o < projection.weight.size(); ++o) {
      for (size_t c = 0; c < weight.size(); ++c) weight[c][o] = projection.weight[o][c];
    }
  }
  *message->mutable_weight() = Weight(weight);
  message->set_layout(layout);
  if (!projection.bias.empty()) *message->mutable_bias() = Vector(projection.bias);
}

TEST(Tupe, PositionsAndBuckets) {
  for (v1::TupeCls cls : {v1::TUPE_CLS_TIED, v1::TUPE_CLS_UNTIED, v1::TUPE_CLS_UNTIED_WITHOUT_BIAS}) {
    Attention a = Drawn(0);
    constexpr int64_t kWidth = 10, kBuckets = 8;
    const auto table = a.DrawRows(9, kWidth), bias = a.DrawRows(kBuckets, a.heads);
    const Row weight = a.Draw(kWidth), shift = a.Draw(kWidth);
    const Projected query{a.DrawRows(a.heads * a.dim, kWidth), a.Draw(a.heads * a.dim)};
    const Projected key{a.DrawRows(a.heads * a.dim, kWidth), {}};
    v1::RelativeScoresRequest request = a.Request(true, true);
    auto& tupe = *request.mutable_method()->mutable_tupe();
    *tupe.mutable_position_embeddings() = Weight(table);
    *tupe.mutable_layer_norm()->mutable_weight() = Vector(weight);
    *tupe.mutable_layer_norm()->mutable_bias() = Vector(shift);
    tupe.mutable_layer_norm()->set_epsilon(1e-5);
    Put(query, v1::WEIGHT_LAYOUT_OUTPUT_BY_INPUT, tupe.mutable_query());
    Put(key, v1::WEIGHT_LAYOUT_INPUT_BY_OUTPUT, tupe.mutable_key());
    tupe.mutable_relative_bias()->set_bidirectional(true);
    tupe.mutable_relative_bias()->set_num_buckets(kBuckets);
    tupe.mutable_relative_bias()->set_max_distance(16);
    *tupe.mutable_relative_bias_table() = Weight(bias);
    tupe.set_relative_bias_table_layout(v1::BIAS_TABLE_LAYOUT_BUCKETS_BY_HEADS);
    tupe.set_cls(cls);
    // Buckets of key - query -4 .. 6 by the formula, with 8 buckets and distance 16: n if n < 2, else 2 +
    // trunc(ln(n/2)/ln 8 * 2); 4 more on the right.
    const auto bucket = [](int64_t key_minus_query) {
      const int64_t n = std::abs(key_minus_query);
      const int64_t of_n =
          n < 2 ? n : std::min<int64_t>(3, 2 + static_cast<int64_t>(std::log(n / 2.0) / std::log(8.0) * 2));
      return of_n + (key_minus_query > 0 ? 4 : 0);
    };
    const auto product = [&](int64_t query_row, int64_t key_row, int64_t h) {
      const auto of = [&](const Projected& p, int64_t row) {
        return HeadOf(reference::Linear(p.weight, reference::LayerNorm(table[row], weight, shift, 1e-5), p.bias), h,
                      a.dim);
      };
      return Dot(of(query, query_row), of(key, key_row));
    };
    a.Expect(
        Call(request),
        [&](auto b, auto h, auto i, auto j) {
          const auto qp = static_cast<int64_t>(a.query_positions[b * a.queries + i]);
          const auto kp = static_cast<int64_t>(a.key_positions[b * a.keys + j]);
          const bool untied = cls != v1::TUPE_CLS_TIED, is_cls = untied && (qp == 0 || kp == 0);
          double sum = !untied   ? product(qp, kp, h)
                       : qp == 0 ? product(0, 0, h)
                       : kp == 0 ? product(1, 1, h)
                                 : product(qp + 1, kp + 1, h);
          sum = (sum + Dot(a.Q(b, h, i), a.K(b, h, j))) / std::sqrt(16.0);
          return is_cls && cls == v1::TUPE_CLS_UNTIED_WITHOUT_BIAS ? sum : sum + bias[bucket(kp - qp)][h];
        },
        2e-6);  // normalised and projected rows are rounded
  }
}

TEST(Deberta, ContentToPositionAndBack) {
  for (const std::optional<int64_t> buckets : {std::optional<int64_t>(), {8}}) {
    for (bool c2p : {true, false}) {
      for (bool p2c : {true, false}) {
        if (!c2p && !p2c) continue;
        Attention a = Drawn(20);
        constexpr int64_t kWidth = 6, kMax = 16;
        const int64_t span = buckets.value_or(kMax);
        const auto table = a.DrawRows(2 * span, kWidth);
        const Projected key{a.DrawRows(a.heads * a.dim, kWidth), {}};
        const Projected query{a.DrawRows(a.heads * a.dim, kWidth), a.Draw(a.heads * a.dim)};
        v1::RelativeScoresRequest request = a.Request(true, true);
        auto& deberta = *request.mutable_method()->mutable_deberta();
        *deberta.mutable_relative_embeddings() = Weight(table);
        if (c2p) Put(key, v1::WEIGHT_LAYOUT_OUTPUT_BY_INPUT, deberta.mutable_key());
        if (p2c) Put(query, v1::WEIGHT_LAYOUT_OUTPUT_BY_INPUT, deberta.mutable_query());
        if (buckets) deberta.set_position_buckets(*buckets);
        deberta.set_max_relative_positions(kMax);
        deberta.set_distance(v1::DEBERTA_DISTANCE_UNBOUNDED);
        const auto answer = Call(request);
        a.Expect(
            answer,
            [&](auto b, auto h, auto i, auto j) {
              const int64_t r = a.Distance(b, i, j);
              const int64_t row =
                  reference::DebertaRow(buckets ? reference::DebertaBucket(r, *buckets, kMax) : r, span);
              double sum = Dot(a.Q(b, h, i), a.K(b, h, j));
              if (c2p) sum += Dot(a.Q(b, h, i), HeadOf(reference::Linear(key.weight, table[row], key.bias), h, a.dim));
              if (p2c)
                sum += Dot(a.K(b, h, j), HeadOf(reference::Linear(query.weight, table[row], query.bias), h, a.dim));
              return sum / std::sqrt(8.0 * (1 + c2p + p2c));
            },
            1e-6);
        ASSERT_THAT(answer, IsOk());
        EXPECT_EQ(answer->scale(), 1 / std::sqrt(8.0 * (1 + c2p + p2c)));
      }
    }
  }
}

TEST(Wpr, Wavelets) {
  for (v1::Wavelet wavelet : {v1::WAVELET_RICKER, v1::WAVELET_GAUSSIAN, v1::WAVELET_MORLET, v1::WAVELET_HAAR}) {
    for (v1::WprChannels channels : {v1::WPR_CHANNELS_SHIFT_FASTEST, v1::WPR_CHANNELS_SCALE_FASTEST}) {
      for (v1::WprDistance distance : {v1::WPR_DISTANCE_QUERY_MINUS_KEY, v1::WPR_DISTANCE_KEY_MINUS_QUERY}) {
        const Attention a = Drawn(3);
        v1::RelativeScoresRequest request = a.Request(false, false);
        auto& wpr = *request.mutable_method()->mutable_wpr();
        wpr.set_wavelet(wavelet);
        wpr.set_scales(2);
        wpr.set_first_exponent(1);
        wpr.set_channels(channels);
        wpr.set_distance(distance);
        if (wavelet == v1::WAVELET_MORLET) wpr.set_morlet_frequency(1.5);
        a.Expect(
            Call(request),
            [&](auto b, auto h, auto i, auto j) {
              const int64_t n =
                  distance == v1::WPR_DISTANCE_QUERY_MINUS_KEY ? a.Distance(b, i, j) : -a.Distance(b, i, j);
              Row p;
              for (int64_t c = 0; c < a.dim; ++c) {
                const bool shifts = channels == v1::WPR_CHANNELS_SHIFT_FASTEST;
                const int64_t shift = shifts ? c % 4 : c / 2, scale = shifts ? c / 4 : c % 2;
                const double u = static_cast<double>(n - shift) / (scale == 0 ? 2.0 : 4.0);
                p.push_back(wavelet == v1::WAVELET_RICKER     ? reference::Ricker(u)
                            : wavelet == v1::WAVELET_GAUSSIAN ? reference::GaussianWavelet(u)
                            : wavelet == v1::WAVELET_MORLET   ? reference::Morlet(u, 1.5)
                                                              : reference::Haar(u));
              }
              return Dot(a.Q(b, h, i), p) / std::sqrt(8.0);
            },
            1e-7);
      }
    }
  }
}

// d = 4, two scales, shifts vary fastest: computed by hand from (1 - u^2) exp(-u^2 / 2).
TEST(Wpr, WorkedNumbers) {
  Attention a{.batch = 1, .heads = 4, .key_heads = 4, .queries = 4, .keys = 1, .dim = 4};
  a.Fill(0);
  std::fill(a.q.begin(), a.q.end(), 0.0);
  for (int64_t h = 0; h < 4; ++h) {  // head h reads channel h
    for (int64_t i = 0; i < 4; ++i) a.q[(h * 4 + i) * 4 + h] = 2;
  }
  v1::RelativeScoresRequest request = a.Request(false, false);
  auto& wpr = *request.mutable_method()->mutable_wpr();
  wpr.set_wavelet(v1::WAVELET_RICKER);
  wpr.set_scales(2);
  wpr.set_channels(v1::WPR_CHANNELS_SHIFT_FASTEST);
  wpr.set_distance(v1::WPR_DISTANCE_QUERY_MINUS_KEY);
  const auto answer = Call(request);
  ASSERT_THAT(answer, IsOk());
  const std::vector<std::vector<double>> rows = {
      {1, 0, 1, .661873}, {0, 1, .661873, 1}, {-.406006, 0, 0, .661873}, {-.088872, -.406006, -.405816, 0}};
  for (int64_t h = 0; h < 4; ++h) {
    for (int64_t t = 0; t < 4; ++t) EXPECT_NEAR(ValuesOf(answer->scores())[h * 4 + t], rows[t][h], 6e-7);
  }
}

TEST(Cope, CountsByContent) {
  for (bool content : {false, true}) {
    for (int64_t positions : {1, 3, 50}) {
      Attention a = Drawn(4);
      const auto table = a.DrawRows(positions, a.dim);
      v1::RelativeScoresRequest request = a.Request(content, true);
      *request.mutable_method()->mutable_cope()->mutable_position_embeddings() = Weight(table);
      request.mutable_mask()->set_causal(true);
      request.mutable_mask()->set_window_left(4);
      request.mutable_mask()->set_fill_value(-1e4);
      request.mutable_mask()->set_fully_masked_row(v1::FULLY_MASKED_ROW_FILL);
      a.Expect(
          Call(request),
          [&](auto b, auto h, auto i, auto j) {
            Row logits, products;
            for (int64_t t = 0; t < a.keys; ++t) {
              const int64_t r = a.Distance(b, i, t);
              logits.push_back(r < 0 || r > 4 ? -INFINITY : Dot(a.Q(b, h, i), a.K(b, h, t)) / std::sqrt(8.0));
            }
            if (logits[j] == -INFINITY) return -1e4;
            for (const Row& row : table) products.push_back(Dot(a.Q(b, h, i), row));
            const double sum = reference::Cope(logits, products)[j] + (content ? Dot(a.Q(b, h, i), a.K(b, h, j)) : 0);
            return sum / std::sqrt(8.0);
          },
          1e-6);
    }
  }
}

// Every processor target gives the same bytes, with or without fused multiply-adds.
TEST(RelativeScores, TheSameBytesOnEveryTarget) {
  Attention a{.batch = 1, .heads = 2, .key_heads = 1, .queries = 37, .keys = 300, .dim = 20};
  a.Fill(263);
  const auto table = a.DrawRows(201, a.dim);
  v1::RelativeScoresRequest shaw = ShawRequest(a, table, true, true), cope = a.Request(true, true);
  *cope.mutable_method()->mutable_cope()->mutable_position_embeddings() = Weight(table);
  for (const auto& request : {shaw, cope}) {
    std::string first;
    OnEveryTarget([&] {
      const auto answer = Call(request);
      ASSERT_THAT(answer, IsOk());
      if (first.empty()) first = answer->scores().data();
      EXPECT_TRUE(answer->scores().data() == first);
    });
  }
}

// A NaN of q, whatever its bits, makes each of its cells NaN. Rounded like a number, it would become zero in BF16.
TEST(RelativeScores, KeepsNans) {
  Attention a{.batch = 1, .heads = 1, .key_heads = 1, .queries = 6, .keys = 70, .dim = 4};
  a.Fill(69);  // then a causal mask hides no key of the first query
  const auto table = a.DrawRows(9, a.dim);
  v1::RelativeScoresRequest shaw = ShawRequest(a, table, false, false), cope = a.Request(true, true);
  *cope.mutable_method()->mutable_cope()->mutable_position_embeddings() = Weight(table);
  v1::RelativeScoresRequest masked = shaw, added = shaw;
  masked.mutable_mask()->set_causal(true);
  masked.mutable_mask()->set_fill_value(0);
  masked.mutable_mask()->set_fully_masked_row(v1::FULLY_MASKED_ROW_FILL);
  added.mutable_add_to();
  for (auto request : {shaw, cope, masked, added}) {
    for (DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16}) {
      request.set_dtype(Wire(dtype));
      if (request.has_add_to()) {
        *request.mutable_add_to() = MakeTensor(dtype, {1, 1, a.queries, a.keys}, a.Draw(a.queries * a.keys));
      }
      // Sets the first channel of every other query.
      const uint32_t nans[] = {0xffffffff, 0x7fffffff, 0x7f800001};
      std::string& q = *request.mutable_q()->mutable_data();
      for (size_t n = 0; n < std::size(nans); ++n) std::memcpy(&q[2 * n * a.dim * sizeof(float)], &nans[n], 4);
      OnEveryTarget([&] {
        const auto answer = Call(request);
        ASSERT_THAT(answer, IsOk());
        const std::vector<double> ours = ValuesOf(answer->scores());
        a.ForEach([&](int64_t, int64_t, int64_t i, int64_t j, int64_t n) {
          EXPECT_EQ(std::isnan(ours[n]), i % 2 == 0) << Name(dtype) << " " << i << " " << j << " " << ours[n];
        });
      });
    }
  }
}

}  // namespace
}  // namespace posenc::relative_oracle_test
