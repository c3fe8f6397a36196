// Digests of resized learned tables.
#include <fmt/format.h>

#include "posenc/kernels/convert.h"
#include "posenc/methods/embedding/encoding.h"
#include "tests/digests/digest_case.h"
#include "tests/digests/digest_inputs.h"

namespace posenc {
namespace {

struct ResizedCase {
  Frequencies frequencies;
  DType table;
  DType dtype;
  std::string way;
  int64_t source[2];
  int64_t target[2];
  int64_t width;
};

TableResize ResizeBy(const std::string& way) {
  TableResize resize;
  const auto has = [&way](const char* word) { return way.find(word) != std::string::npos; };
  resize.mode = has("nearest") ? ResizeMode::kNearest : has("bicubic") ? ResizeMode::kBicubic : ResizeMode::kBilinear;
  resize.align_corners = has("corners");
  resize.antialias = has("antialias");
  if (has("zeros")) resize.padding = ResizePadding::kZeros;
  if (has("gather")) resize.operations = ResizeOperations::kGather;
  if (has("bag")) resize.operations = ResizeOperations::kEmbeddingBag;
  if (has("sample")) resize.operations = ResizeOperations::kGridSample;
  return resize;
}

Block RunResized(const ResizedCase& c) {
  LearnedSettings settings;
  settings.table_shape = {c.table, {c.source[0] * c.source[1], c.width}};
  std::vector<double> values(c.source[0] * c.source[1] * c.width);
  for (size_t n = 0; n < values.size(); ++n) values[n] = RandomReal(1, n, -3, 5);
  settings.table.resize(values.size() * SizeOf(c.table));
  Convert(DType::kFP64, c.table, values.data(), settings.table.data(), values.size());
  settings.resize = ResizeBy(c.way);
  settings.resize->source = {c.source[0], c.source[1]};
  settings.resize->target = {c.target[0], c.target[1]};
  const int64_t rows = c.target[0] * c.target[1];
  Block out(rows * c.width * SizeOf(c.dtype), 1);
  const auto encoding = Encode(std::move(settings), c.frequencies, {});
  EXPECT_TRUE(encoding.ok()) << encoding.status();
  std::vector<double> positions(rows);
  for (int64_t n = 0; n < rows; ++n) positions[n] = static_cast<double>(n);
  if (encoding.ok()) (*encoding)->Fill(positions.data(), rows, c.dtype, out.data());
  return out;
}

std::vector<Case> ResizedCases() {
  std::vector<Case> cases;
  const auto add = [&cases](Frequencies frequencies, DType dtype, const char* way) {
    const size_t n = cases.size();
    const ResizedCase c = {
        .frequencies = frequencies,
        .table = Turn<DType>(n, {DType::kFP32, DType::kBF16, DType::kFP16, DType::kFP32, DType::kFP64}),
        .dtype = dtype,
        .way = way,
        .source = {Turn<int64_t>(n, {4, 3, 7}), Turn<int64_t>(n, {4, 6, 2, 5})},
        .target = {Turn<int64_t>(n, {8, 2, 5, 1}), Turn<int64_t>(n, {3, 8, 7})},
        .width = Turn<int64_t>(n, {5, 16, 33})};
    cases.push_back({fmt::format("frequencies={} table={} dtype={} way={} rows={} columns={} to_rows={} to_columns={} "
                                 "width={}",
                                 Name(frequencies), Name(c.table), Name(dtype), way, c.source[0], c.source[1],
                                 c.target[0], c.target[1], c.width),
                     [c] { return RunResized(c); }});
  };
  for (const char* way : {"nearest", "bilinear", "bicubic", "bilinear-corners", "bicubic-corners", "bilinear-antialias",
                          "bicubic-antialias", "bicubic-antialias-corners", "bilinear-zeros", "bicubic-zeros"}) {
    for (const DType dtype : kTypes) add(Frequencies::kExact, dtype, way);
  }
  for (const char* way :
       {"bilinear", "bicubic", "bicubic-antialias", "bilinear-corners-gather", "bicubic-bag", "bicubic-sample"}) {
    for (const Frequencies frequencies : {Frequencies::kFloat32, Frequencies::kFloat64}) {
      for (const DType dtype : {DType::kFP32, DType::kBF16}) add(frequencies, dtype, way);
    }
  }
  return cases;
}

}  // namespace

TEST_P(DigestTest, Resized) { Check("resized", ResizedCases()); }

}  // namespace posenc
