#include "tools/posenc/values.h"

#include <charconv>
#include <cmath>

#include <CLI/CLI.hpp>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "tools/files/tensor_file.h"

namespace posenc::command {
namespace {

template <typename Number>
absl::StatusOr<Number> Parse(std::string_view text, const char* kind) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return number;
  const std::string what = error == std::errc::result_out_of_range ? "out of range" : absl::StrCat("not ", kind);
  return absl::InvalidArgumentError(absl::StrCat("\"", Quote(text), "\" is ", what));
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

template <typename Number>
absl::StatusOr<std::vector<Number>> ParseList(std::string_view text, absl::StatusOr<Number> (*parse)(std::string_view),
                                              char separator = ',') {
  std::vector<Number> numbers;
  for (std::string_view part : Split(text, separator)) {
    POSENC_ASSIGN_OR_RETURN(const Number number, parse(part));
    numbers.push_back(number);
  }
  return numbers;
}

template <typename Number>
v1::Tensor MakeTensor(v1::DataType dtype, const std::vector<Number>& numbers) {
  v1::Tensor tensor;
  tensor.set_dtype(dtype);
  tensor.add_shape(static_cast<int64_t>(numbers.size()));
  tensor.set_data(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number));
  return tensor;
}

// Parses a number that must not be rounded when it is an integer.
absl::StatusOr<double> ParsePosition(std::string_view text) {
  POSENC_ASSIGN_OR_RETURN(const double number, ParseDouble(text));
  constexpr double kMost = 9007199254740992;  // 2^53
  const absl::StatusOr<int64_t> integer = ParseInt64(text);
  if (std::fabs(number) < kMost || !integer.ok() || (std::fabs(number) == kMost && *integer % 2 == 0)) return number;
  return absl::InvalidArgumentError(absl::StrCat("\"", Quote(text), "\" is beyond 2^53 in magnitude"));
}

absl::StatusOr<v1::PositionLine> ParseLine(const std::vector<std::string_view>& fields) {
  v1::PositionLine line;
  POSENC_ASSIGN_OR_RETURN(const int64_t count, ParseInt64(fields[0]));
  POSENC_ASSIGN_OR_RETURN(const double start, ParsePosition(fields[1]));
  line.set_count(count);
  line.set_start(start);
  if (fields.size() == 3) {
    POSENC_ASSIGN_OR_RETURN(const double step, ParsePosition(fields[2]));
    line.set_step(step);
  }
  return line;
}

absl::StatusOr<v1::PositionGrid> ParseGrid(const std::vector<std::string_view>& fields) {
  v1::PositionGrid grid;
  POSENC_ASSIGN_OR_RETURN(const std::vector<int64_t> size, ParseList(fields[0], ParseInt64, 'x'));
  grid.mutable_size()->Assign(size.begin(), size.end());
  if (fields.size() > 1) {
    POSENC_ASSIGN_OR_RETURN(const std::vector<double> start, ParseList(fields[1], ParsePosition, 'x'));
    grid.mutable_start()->Assign(start.begin(), start.end());
  }
  if (fields.size() > 2) {
    POSENC_ASSIGN_OR_RETURN(const std::vector<double> step, ParseList(fields[2], ParsePosition, 'x'));
    grid.mutable_step()->Assign(step.begin(), step.end());
  }
  return grid;
}

bool IsFile(std::string_view text) {
  if (text == "-" || text.starts_with("-:") || text.starts_with("/dev/fd/")) return true;
  return text.ends_with(".npy") || text.find(".safetensors") != std::string_view::npos;
}

constexpr char kFileMark[] = "posenc/file";  // marks an error of a file, as opposed to one of the command line

absl::StatusOr<v1::Tensor> ReadNamed(const std::string& path) {
  absl::StatusOr<v1::Tensor> tensor = ReadTensor(path);
  if (tensor.ok() || !IsFile(path)) return tensor;
  absl::Status status = tensor.status();
  status.SetPayload(kFileMark, absl::Cord());
  return status;
}

}  // namespace

void Refuse(const std::string& flag, const absl::Status& status) {
  const std::string message(status.message());
  if (status.GetPayload(kFileMark).has_value()) throw CLI::FileError(absl::StrCat(flag, ": ", message));
  throw CLI::ValidationError(flag, message);
}

absl::StatusOr<double> ParseDouble(std::string_view text) { return Parse<double>(text, "a number"); }
absl::StatusOr<int64_t> ParseInt64(std::string_view text) { return Parse<int64_t>(text, "an integer"); }
absl::StatusOr<std::vector<double>> ParseDoubles(std::string_view text) { return ParseList(text, ParseDouble); }
absl::StatusOr<std::vector<int64_t>> ParseInt64s(std::string_view text) { return ParseList(text, ParseInt64); }

absl::StatusOr<v1::Tensor> ParseTensor(const std::string& text) {
  if (IsFile(text)) return ReadNamed(text);
  if (const auto integers = ParseInt64s(text); integers.ok()) return MakeTensor(v1::DATA_TYPE_INT64, *integers);
  if (ParseDoubles(text).ok()) {
    POSENC_ASSIGN_OR_RETURN(const std::vector<double> numbers, ParseList<double>(text, ParsePosition));
    return MakeTensor(v1::DATA_TYPE_FP64, numbers);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", Quote(text), "\" is neither a .npy or .safetensors file nor numbers separated by commas"));
}

absl::StatusOr<v1::AxialRope> ParseAxial(std::string_view text) {
  v1::AxialRope axial;
  for (std::string_view part : Split(text, ',')) {
    if (part == "alternating") {
      axial.set_alternating(true);
      continue;
    }
    const std::vector<std::string_view> fields = Split(part, ':');
    if (fields.size() > 3) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", Quote(part), "\" is not DIM, DIM:THETA, DIM:THETA:FREQUENCY_START or alternating"));
    }
    v1::AxialAxis& axis = *axial.add_axes();
    POSENC_ASSIGN_OR_RETURN(const int64_t dim, ParseInt64(fields[0]));
    axis.set_dim(dim);
    if (fields.size() > 1) {
      POSENC_ASSIGN_OR_RETURN(const double theta, ParseDouble(fields[1]));
      axis.set_rope_theta(theta);
    }
    if (fields.size() > 2) {
      POSENC_ASSIGN_OR_RETURN(const double start, ParseDouble(fields[2]));
      axis.set_frequency_start(start);
    }
  }
  return axial;
}

absl::StatusOr<v1::Tensor> ParseRuns(const std::string& text) {
  if (text.find('*') == std::string::npos) return ParseTensor(text);
  std::vector<int64_t> values;
  for (const std::string_view run : Split(text, ',')) {
    const std::vector<std::string_view> parts = Split(run, '*');
    POSENC_ASSIGN_OR_RETURN(const int64_t value, ParseInt64(parts[0]));
    int64_t count = 1;
    if (parts.size() == 2) {
      POSENC_ASSIGN_OR_RETURN(count, ParseInt64(parts[1]));
    }
    constexpr int64_t kMost = int64_t{1} << 24;
    if (parts.size() > 2 || count < 0 || count > kMost - static_cast<int64_t>(values.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", Quote(run), "\" is not VALUE or VALUE*COUNT, of 2^24 in all"));
    }
    values.insert(values.end(), count, value);
  }
  return MakeTensor(v1::DATA_TYPE_INT64, values);
}

absl::StatusOr<v1::Tensor> ParseGrids(const std::string& text, size_t sides) {
  if (text.find_first_not_of("0123456789x,") != std::string::npos) return ReadNamed(text);
  std::vector<int64_t> values;
  for (const std::string_view part : Split(text, ',')) {
    POSENC_ASSIGN_OR_RETURN(const std::vector<int64_t> grid, ParseList(part, ParseInt64, 'x'));
    if (grid.size() != sides) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", Quote(part), "\" is not ", sides == 3 ? "FRAMESxROWSxCOLUMNS" : "ROWSxCOLUMNS"));
    }
    values.insert(values.end(), grid.begin(), grid.end());
  }
  v1::Tensor tensor = MakeTensor(v1::DATA_TYPE_INT64, values);
  tensor.set_shape(0, static_cast<int64_t>(values.size() / sides));
  tensor.add_shape(static_cast<int64_t>(sides));
  return tensor;
}

absl::StatusOr<v1::PositionSegments> ParseSegments(std::string_view text) {
  v1::PositionSegments segments;
  for (std::string_view part : Split(text, ',')) {
    const std::vector<std::string_view> fields = Split(part, ':');
    const bool grid = fields[0].find('x') != std::string_view::npos;
    if (fields.size() > 3 || (fields.size() < 2 && !grid)) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", Quote(part), "\" is not COUNT:START, COUNT:START:STEP or TxHxW[:TxHxW[:TxHxW]]"));
    }
    if (grid) {
      POSENC_ASSIGN_OR_RETURN(*segments.add_segment()->mutable_grid(), ParseGrid(fields));
    } else {
      POSENC_ASSIGN_OR_RETURN(*segments.add_segment()->mutable_line(), ParseLine(fields));
    }
  }
  return segments;
}

}  // namespace posenc::command
