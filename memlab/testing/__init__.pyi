from memlab.testing.conformance import COUNT as COUNT
from memlab.testing.conformance import TEXTS as TEXTS
from memlab.testing.conformance import DeletingSuite as DeletingSuite
from memlab.testing.conformance import FilesLab as FilesLab
from memlab.testing.conformance import Lab as Lab
from memlab.testing.conformance import ReadingSuite as ReadingSuite
from memlab.testing.conformance import ServerSuite as ServerSuite
from memlab.testing.recording import run_suite as run_suite
