// Answers about models: metadata, configuration, counters.
#pragma once

#include "inference/service.pb.h"
#include "server/oip/models.h"

namespace posenc::server {

void DescribeModel(const Model& model, inference::ModelMetadataResponse* response);
void DescribeModel(const Model& model, inference::ModelConfig* config);
void DescribeModel(const Model& model, inference::ModelStatistics* statistics);
void DescribeModel(const Model& model, inference::RepositoryIndexResponse::ModelIndex* index);

}  // namespace posenc::server
