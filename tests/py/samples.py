"""torch's own database of operators and its samples. Each sample is seeded by the test that asks for it, if that is a
method of a unittest.TestCase: torch looks for it in the frames of the whole stack, twice an operator, for which
`inspect` reads their sources. No test here is one."""

from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db  # noqa: F401
from torch.testing._internal.opinfo import core

common_utils.extract_test_fn = core.extract_test_fn = lambda: None
