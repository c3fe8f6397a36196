// Products by token against scalar arithmetic, the same bytes on every target.
#include "posenc/kernels/scale_rows.h"

#include "tests/kernels/elements.h"
#include "tests/kernels/every_target.h"

namespace posenc {
namespace {

struct Layout {
  size_t tokens, heads, elements, gap, misalignment;
  bool heads_outermost;
};

TEST(ScaleRows, MatchScalarProducts) {
  std::mt19937_64 random(20261129);
  const std::vector<float> factors = {1, 1.0693147F, 0, -2, 0x1p-130F, 3e38F, 0.5F};
  for (const DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16}) {
    for (const Layout& layout : {Layout{7, 3, 37, 6, 1, false},
                                 {5, 2, 64, 0, 0, true},
                                 {1, 1, 1, 0, 3, false},
                                 {7, 1, 0, 8, 0, false},
                                 {3, 4, 130, 2, 2, true}}) {
      const size_t element = SizeOf(dtype), row = layout.elements * element + layout.gap;
      const size_t outer = layout.heads_outermost ? layout.heads : layout.tokens;
      const size_t inner = layout.heads_outermost ? layout.tokens : layout.heads;
      Block before(outer * inner * row, layout.misalignment);
      FillWithElements(dtype, random, before.data(), before.size() / element);
      OnEveryTarget([&] {
        Block y(before.size(), layout.misalignment);
        std::memcpy(y.data(), before.data(), y.size());
        ScaleRows({.dtype = dtype,
                   .elements = layout.elements,
                   .factors = factors.data(),
                   .y = y.data(),
                   .tokens = layout.tokens,
                   .heads = layout.heads,
                   .token_stride = layout.heads_outermost ? row : row * layout.heads,
                   .head_stride = layout.heads_outermost ? row * layout.tokens : row});
        for (size_t n = 0; n < outer * inner; ++n) {
          const float factor = factors[layout.heads_outermost ? n % inner : n / inner];
          const std::byte *x = before.data() + n * row, *got = y.data() + n * row;
          for (size_t i = 0; i < layout.elements; ++i, x += element, got += element) {
            const double product = static_cast<float>(reference::Decode(dtype, x)) * factor;
            std::vector<std::byte> want(element);
            reference::Encode(dtype, product, want.data());
            const double decoded = reference::Decode(dtype, got);
            ASSERT_TRUE((std::isnan(product) && std::isnan(decoded)) || std::equal(want.begin(), want.end(), got))
                << Name(dtype) << " row " << n << " element " << i << ": " << decoded << ", not " << product;
          }
          ASSERT_TRUE(std::equal(got, static_cast<const std::byte*>(y.data()) + (n + 1) * row, x))
              << "written beyond the row";
        }
      });
    }
  }
}

}  // namespace
}  // namespace posenc
