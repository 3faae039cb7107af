from memlab.testing.conformance import DeletingSuite as DeletingSuite
from memlab.testing.conformance import ReadingSuite as ReadingSuite
from memlab.testing.conformance import ServerSuite as ServerSuite
from memlab.testing.labs import COUNT as COUNT
from memlab.testing.labs import TEXTS as TEXTS
from memlab.testing.labs import FilesLab as FilesLab
from memlab.testing.labs import Lab as Lab
from memlab.testing.recording import run_suite as run_suite
