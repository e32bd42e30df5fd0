// SPDX-License-Identifier: Apache-2.0
//
// The text on which `wideep quantize` and `wideep bench rows` compare models by default: prose, a
// sum and code, written for this purpose.
#pragma once

namespace wideep::tools {

inline constexpr const char* kHeldOutText =
    R"text(The ferry left the harbour a little after six, when the lamps along the quay were still
burning and the gulls had not yet begun to quarrel over the nets. Martha stood at the rail with her
collar turned up and watched the town grow small. She had lived there for eleven years, in a narrow
house with a blue door, and she had always believed that leaving it would hurt more than this. The
water was flat and grey. Behind her, two men were talking about the price of herring, and one of
them said that it would fall again before the spring, because it always did.

"You are going far?" the other one asked her, when he noticed that she was listening.

"Only to my sister," she said. "But I have sold the house."

He nodded as if that explained everything. After a while he offered her a piece of bread, and she
took it, and they ate without speaking while the sun came up over the eastern islands. By eight
o'clock the wind had turned. The captain sent a boy round to say that they would be late, that
there was soup in the cabin, and that anybody who felt unwell should look at the horizon and not at
the floor.

Question: A baker has 48 rolls. He sells half of them in the morning and a third of what is left in
the afternoon. How many rolls remain in the evening?
Answer: In the morning he sells 48 / 2 = 24 rolls, so 24 are left. In the afternoon he sells a third
of 24, which is 24 / 3 = 8 rolls. In the evening 24 - 8 = 16 rolls remain. The answer is 16.

A river that crosses flat land seldom runs straight. Where the current is a little faster on one
side, it takes earth from the bank; where it is slower, on the other side, it lets the earth fall.
So a small bend becomes a larger one, and the larger bend makes the difference in speed greater
still. In the end the loop is so wide that the river breaks through its neck during a flood, and a
curved lake is left behind, which slowly fills with reeds and becomes a meadow.

def running_mean(values):
    total = 0.0
    means = []
    for count, value in enumerate(values, start=1):
        total += value
        means.append(total / count)
    return means


class Queue:
    def __init__(self, limit):
        self.items = []
        self.limit = limit

    def push(self, item):
        if len(self.items) >= self.limit:
            raise ValueError("the queue is full")
        self.items.append(item)

    def pop(self):
        if not self.items:
            return None
        return self.items.pop(0)
)text";

}  // namespace wideep::tools
