// SPDX-License-Identifier: Apache-2.0
//
// Bytes of a token's intermediate results where they follow from the forms of matrices and from how
// rows travel, which a PartCost does not know: buffers of MlpRunner, TokenRows and ExpertRows.
//
// Thread safety: pure functions.
#pragma once

#include "ep/buffer_layout.h"
#include "model/model_forms.h"

namespace wideep::model {

// The copy of a row as an operand of the matrix; 0 for float32, which needs no copy.
uint64_t operand_row_bytes(const weights::MatrixForm& form, uint64_t width);

// A dense MLP or a shared expert, with its result. input: of its rows.
uint64_t mlp_row_bytes(const weights::MatrixForm& form, int hidden, int intermediate, Dtype input);

// Whether rows travel as they are, in the experts' dtype.
bool travels_plain(const ModelConfig& config, const ModelForms& forms,
                   const ep::DispatchShape& shape);

// Router and routed experts. Assumes balanced ranks: each receives as many rows as it sends.
uint64_t moe_row_bytes(const ModelConfig& config, const ModelForms& forms,
                       const ep::DispatchShape& shape);

}  // namespace wideep::model
