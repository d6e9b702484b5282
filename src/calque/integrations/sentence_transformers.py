"""Use calque in sentence-transformers: losses, data sets and a data collator for training.

Requires `pip install 'calque-align[sentence-transformers,hub]'`.
"""

from calque.integrations.sentence_losses import LinkCollator as LinkCollator
from calque.integrations.sentence_losses import SentenceContrastiveLoss as SentenceContrastiveLoss
from calque.integrations.sentence_losses import WordContrastiveLoss as WordContrastiveLoss
from calque.integrations.sentence_losses import link_dataset as link_dataset
from calque.integrations.sentence_losses import word_encoder as word_encoder
