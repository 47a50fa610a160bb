"""The date that is passed to chat templates, whatever the day of the run."""

import datetime as dt

# The default of Llama 3.1's and 3.2's own templates. With the real day a run that goes on after midnight would train on
# other prompts than before, and the same run tomorrow would be another one.
DAY = dt.date(2024, 7, 26)
