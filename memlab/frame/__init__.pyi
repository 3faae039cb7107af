from memlab.frame.loading import frame_of as frame_of
from memlab.frame.loading import load as load
