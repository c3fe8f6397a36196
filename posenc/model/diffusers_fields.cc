#include "posenc/model/diffusers.h"

#include <fmt/format.h>

#include "posenc/base/status.h"

namespace posenc {

absl::Status Missing(const ConfigObject& config, std::string_view field) {
  return InvalidArgument("MISSING", config.Path(field), "", "must be given: the class has no default for it");
}

bool IsNull(const ConfigObject& config, std::string_view field) {
  return config.tree().contains(field) && config.Find(field) == nullptr;
}

absl::StatusOr<int64_t> PositiveField(const ConfigObject& config, std::string_view field, int64_t default_value) {
  constexpr int64_t kMost = 1 << 20;  // a product of two values and a small factor cannot overflow
  POSENC_ASSIGN_OR_RETURN(const auto given, config.Integer({field}));
  if (!given && default_value == 0) return Missing(config, field);
  const int64_t count = given.value_or(default_value);
  if (count >= 1 && count <= kMost) return count;
  return InvalidArgument("OUT_OF_RANGE", config.Path(field), fmt::format("{}", count),
                         fmt::format("must be 1 .. {}", kMost));
}

absl::StatusOr<int64_t> HeadWidth(const ConfigObject& config, const FieldWidth& width) {
  POSENC_ASSIGN_OR_RETURN(const int64_t elements, PositiveField(config, width.field, width.default_size));
  if (width.heads_field.empty()) return elements;
  POSENC_ASSIGN_OR_RETURN(const int64_t heads, PositiveField(config, width.heads_field, width.default_heads));
  if (elements % heads == 0) return elements / heads;
  return InvalidArgument("MISMATCH", config.Path(width.field), fmt::format("{}", elements),
                         fmt::format("must be a multiple of {}, {}", width.heads_field, heads));
}

absl::StatusOr<int64_t> ModelWidth(const ConfigObject& config, const FieldWidth& width) {
  POSENC_ASSIGN_OR_RETURN(const int64_t elements, PositiveField(config, width.field, width.default_size));
  if (width.heads_field.empty()) return elements;
  POSENC_ASSIGN_OR_RETURN(const int64_t heads, PositiveField(config, width.heads_field, width.default_heads));
  return elements * heads;
}

}  // namespace posenc
