// The values of flags that are more than one word or number.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/v1/rotary.pb.h"
#include "posenc/v1/tensor.pb.h"

namespace posenc::command {

// All of `text`, in JSON's notation or as "inf", "-inf", "nan".
absl::StatusOr<double> ParseDouble(std::string_view text);
absl::StatusOr<int64_t> ParseInt64(std::string_view text);

// Separated by commas; at least one.
absl::StatusOr<std::vector<double>> ParseDoubles(std::string_view text);
absl::StatusOr<std::vector<int64_t>> ParseInt64s(std::string_view text);

// A file, or numbers: INT64 [n] if all are integers, else FP64 [n].
absl::StatusOr<v1::Tensor> ParseTensor(const std::string& text);

// "DIM[:THETA[:FREQUENCY_START]],...", an axis each; "alternating" among them: the axes take turns
absl::StatusOr<v1::AxialRope> ParseAxial(std::string_view text);

// "COUNT:START[:STEP],...", or a grid with an 'x' between its axes: "TxHxW[:TxHxW[:TxHxW]]"
absl::StatusOr<v1::PositionSegments> ParseSegments(std::string_view text);

}  // namespace posenc::command
