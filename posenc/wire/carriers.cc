#include "posenc/wire/carriers.h"

#include <utility>

namespace posenc::wire {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

std::vector<const Descriptor*> TypesWithin(const Descriptor* root) {
  std::vector<const Descriptor*> types = {root};
  absl::flat_hash_set<const Descriptor*> seen = {root};
  for (size_t i = 0; i < types.size(); ++i) {
    for (int n = 0; n < types[i]->field_count(); ++n) {
      const Descriptor* inner = types[i]->field(n)->message_type();
      if (inner != nullptr && seen.insert(inner).second) types.push_back(inner);
    }
  }
  return types;
}

absl::flat_hash_set<const Descriptor*> Carriers(const std::vector<const Descriptor*>& types,
                                                absl::flat_hash_set<const Descriptor*> wanted) {
  for (bool grew = true; grew;) {
    grew = false;
    for (const Descriptor* outer : types) {
      for (int n = 0; n < outer->field_count() && !wanted.contains(outer); ++n) {
        if (wanted.contains(outer->field(n)->message_type())) grew = wanted.insert(outer).second;
      }
    }
  }
  return wanted;
}

LeadingFields::LeadingFields(absl::Span<const Descriptor* const> roots,
                             const absl::flat_hash_set<const Descriptor*>& wanted) {
  for (const Descriptor* root : roots) {
    const std::vector<const Descriptor*> types = TypesWithin(root);
    const auto carriers = Carriers(types, wanted);
    for (const Descriptor* type : types) {
      std::vector<const FieldDescriptor*> fields;
      for (int n = 0; n < type->field_count(); ++n) {
        if (carriers.contains(type->field(n)->message_type())) fields.push_back(type->field(n));
      }
      if (!fields.empty()) fields_[type] = std::move(fields);
    }
  }
}

absl::Span<const FieldDescriptor* const> LeadingFields::Of(const Descriptor* type) const {
  const auto found = fields_.find(type);
  return found == fields_.end() ? absl::Span<const FieldDescriptor* const>() : found->second;
}

}  // namespace posenc::wire
