#include "posenc/wire/carriers.h"

namespace posenc::wire {

using google::protobuf::Descriptor;

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

}  // namespace posenc::wire
