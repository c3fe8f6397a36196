#include "posenc/wire/values.h"

#include <fmt/format.h>

namespace posenc::wire {

absl::StatusOr<TensorShape> ShapeOf(std::string_view field, const v1::Tensor& tensor, const Limits& limits) {
  TensorShape shape;
  POSENC_ASSIGN_OR_RETURN(shape.dtype, Choose(fmt::format("{}.dtype", field), tensor.dtype(), kDataTypes));
  shape.shape.assign(tensor.shape().begin(), tensor.shape().end());
  POSENC_RETURN_IF_ERROR(ByteSize(field, shape, limits).status());
  return shape;
}

}  // namespace posenc::wire
