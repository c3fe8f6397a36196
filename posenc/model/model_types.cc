#include "posenc/model/model_types.h"

#include <map>
#include <string_view>
#include <vector>

namespace posenc {

std::vector<const ModelType*> AllModelTypes() {
  std::vector<const ModelType*> all;
  for (const auto* list : {&RotaryTypes(), &LayeredTypes(), &LatentTypes(), &RemoteCodeTypes(), &SeveralAxesTypes(),
                           &BiasTypes(), &CompositeTypes(), &ScoreTermTypes(), &LearnedTypes(), &LearnedImageTypes(),
                           &SineTypes(), &UnselectedTypes()}) {
    for (const ModelType& type : *list) all.push_back(&type);
  }
  return all;
}

const ModelType* FindModelType(std::string_view model_type) {
  static const auto& by_name = *new std::map<std::string_view, const ModelType*>([] {
    std::map<std::string_view, const ModelType*> names;
    for (const ModelType* type : AllModelTypes()) names.emplace(type->name, type);
    return names;
  }());
  const auto found = by_name.find(model_type);
  return found == by_name.end() ? nullptr : found->second;
}

std::string_view SchemeName(Scheme scheme) {
  switch (scheme) {
    case Scheme::kRotary:
    case Scheme::kAxial: return "a rotary embedding: ApplyRotary";
    case Scheme::kBloomAlibi:
    case Scheme::kMptAlibi:
    case Scheme::kT5:
    case Scheme::kSwin:
    case Scheme::kSwinV2:
    case Scheme::kBeit: return "a distance-dependent attention bias: GenerateBias, AddBias";
    case Scheme::kFalcon: return "ALiBi or a rotary embedding";
    case Scheme::kParts: return "several parts, each with its own encoding";
    case Scheme::kTerms: return "relative score terms of queries and keys: RelativeScores";
    case Scheme::kLearned: return "learned absolute positions: GenerateEmbedding.learned with the model's table";
    case Scheme::kSinusoidal:
      return "a sinusoidal embedding, added to its input: GenerateEmbedding.sinusoidal or .grid";
    case Scheme::kRelativeTerms: return "relative score terms of its own kind";
    case Scheme::kWindowBias: return "a learned bias in windows: GenerateBias with swin or swin_v2";
    case Scheme::kLearnedFrequencies:
      return "a rotary embedding with learned frequencies: ApplyRotary with given_frequencies of several axes";
    case Scheme::kNone: return "no positional encoding of its queries and keys";
  }
  __builtin_unreachable();
}

bool IsSelected(Scheme scheme) {
  switch (scheme) {
    case Scheme::kRotary:
    case Scheme::kAxial:
    case Scheme::kBloomAlibi:
    case Scheme::kMptAlibi:
    case Scheme::kFalcon:
    case Scheme::kT5:
    case Scheme::kSwin:
    case Scheme::kSwinV2:
    case Scheme::kBeit: return true;
    default: return false;
  }
}

}  // namespace posenc
