// Parsers of flag values that are more than one word or number.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/v1/rotary.pb.h"
#include "posenc/v1/tensor.pb.h"

namespace posenc::command {

// Throws the error of a flag's value: CLI::FileError if it is that of a file which the value names, else
// CLI::ValidationError.
[[noreturn]] void Refuse(const std::string& flag, const absl::Status& status);

// Parse all of `text`: a JSON number, or for doubles also "inf", "-inf", "nan".
absl::StatusOr<double> ParseDouble(std::string_view text);
absl::StatusOr<int64_t> ParseInt64(std::string_view text);

// Parse one or more numbers separated by commas.
absl::StatusOr<std::vector<double>> ParseDoubles(std::string_view text);
absl::StatusOr<std::vector<int64_t>> ParseInt64s(std::string_view text);

// Reads a file, or parses numbers: INT64 [n] if all are integers, else FP64 [n].
absl::StatusOr<v1::Tensor> ParseTensor(const std::string& text);

// ParseTensor(), and "VALUE*COUNT,...": values, each with how often it occurs.
absl::StatusOr<v1::Tensor> ParseRuns(const std::string& text);

// Reads a file, or parses "1x16x16,4x8x8", one grid of so many sides per entry: INT64 [n, sides].
absl::StatusOr<v1::Tensor> ParseGrids(const std::string& text, size_t sides);

// Parses "DIM[:THETA[:FREQUENCY_START]],...", one entry per axis; the entry "alternating" interleaves the axes.
absl::StatusOr<v1::AxialRope> ParseAxial(std::string_view text);

// Parses "COUNT:START[:STEP],..."; a grid has an 'x' between its axes: "TxHxW[:TxHxW[:TxHxW]]".
absl::StatusOr<v1::PositionSegments> ParseSegments(std::string_view text);

}  // namespace posenc::command
