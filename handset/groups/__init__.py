"""Groups at a handset: reception and distribution of sender keys, and messages encrypted once for all participants."""
